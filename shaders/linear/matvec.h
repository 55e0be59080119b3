// matvec.h: contract of matvec.comp. Variant: CONV is matvec_conv_...
#ifndef MATVEC_H
#define MATVEC_H
#include "conv_step.h"
#define MATVEC_Y 0       // (T, N) out, f32; inout when args.add
#define MATVEC_X 1       // (T, K) in, f32
#define MATVEC_WEIGHTS 2 // (N, K) in, any format; (2 N, K) when GATED: gate's rows, then up's
#define MATVEC_BIAS 3    // (1, N) in, f32, (1, 2 N) when GATED; read when args.has_bias
#define MATVEC_NORM 4    // (1, K) in, f32; read when NORM
#define MATVEC_BINDINGS 5
#define MATVEC_CONV_BINDINGS (MATVEC_BINDINGS + CONV_STEP_BINDINGS) // conv_step.h
#define MATVEC_SPEC_LANES 0
#define MATVEC_SPEC_ROWS 1    // outputs of a workgroup
#define MATVEC_SPEC_TOKENS 2  // tokens of a workgroup
#define MATVEC_SPEC_UNROLL 3  // groups of 8 weights of a row that an invocation loads at once
#define MATVEC_SPEC_ALIGNED 4 // 1: K and x_stride are multiples of 4
#define MATVEC_SPEC_NORM 5    // 1: x is normed
#define MATVEC_SPEC_GATED 6   // 1: y = act(gate) * up
#define MATVEC_SPEC_SETS 7    // sets of invocations in a workgroup, each with its own outputs
#define MATVEC_SPEC_LENGTH 8  // with SETS, K: x is staged once for all sets; 0: it is not
#define MATVEC_SPEC_FORMAT 9  // weights.glsl
#define MATVEC_SPEC_ACTIVATION 10 // of gate
#define MATVEC_SPECS 11
#define MATVEC_CONV_SPEC_W 11    // taps
#define MATVEC_CONV_SPEC_LONE 12 // 1: one sequence, in row 0 and slot 0
#define MATVEC_CONV_SPECS 13
struct matvec_args {
  uint T;
  uint N;
  uint K;
  uint y_stride;
  uint x_stride;
  uint w_stride;
  uint first; // index of the first output: weights too large for one descriptor take several dispatches
  uint add;
  uint has_bias;
  float eps;                   // of the norm
  STRUCT(conv_step_args) conv; // of matvec_conv
  uint k;                      // of matvec_dot with experts: choices of a token, of T / k tokens
  uint share;                  // rows of y with the same row of x
  uint ids_stride;
  uint first_expert; // weights too large for one descriptor take several dispatches
  uint experts;      // of this dispatch
};
ARGS(matvec_args)
#endif
