// conv_inputs.h: contract of conv_inputs.comp.
#ifndef CONV_INPUTS_H
#define CONV_INPUTS_H
#include "control.h"
#include "interface.h"
#include "key_norm.h"
#define CONV_INPUTS_Y 0         // (T, keys * pitch + C - keys * Dk) out, f32 or f16
#define CONV_INPUTS_X 1         // (T, C) in, f32
#define CONV_INPUTS_WEIGHT 2    // (W, C) in, f32
#define CONV_INPUTS_BIAS 3      // (1, C) in, f32; read when args.has_bias
#define CONV_INPUTS_HISTORY 4   // (slots, (W - 1) * C) inout, f32, oldest first
#define CONV_INPUTS_SEQUENCES 5 // (B) in, struct sequence
#define CONV_INPUTS_BETA 6      // as delta_inputs.h
#define CONV_INPUTS_G 7
#define CONV_INPUTS_BA 8
#define CONV_INPUTS_A_LOG 9
#define CONV_INPUTS_DT_BIAS 10
#define CONV_INPUTS_BINDINGS 11
#define CONV_INPUTS_SPEC_LANES 0
#define CONV_INPUTS_SPEC_W 1
#define CONV_INPUTS_SPEC_RUN 2    // tokens of a subgroup, at least W - 1
#define CONV_INPUTS_SPEC_GROUPS 3 // groups of four columns of an invocation, enough for the pitch
#define CONV_INPUTS_SPEC_READ4 4  // 1: x and weight are read in vectors of four
#define CONV_INPUTS_SPEC_WRITE4 5 // 1: y is written in vectors of four
#define CONV_INPUTS_SPEC_ACTIVATION 6
#define CONV_INPUTS_SPEC_NORM 7
#define CONV_INPUTS_SPECS 8
struct conv_inputs_args {
  uint C;
  uint silu_from; // as short_conv.h
  uint keys;
  uint Dk;
  uint pitch;
  uint y_stride;
  uint x_stride;
  uint weight_stride;
  uint history_stride;
  uint has_bias;
  uint betas; // as delta_inputs.h
  uint decays;
  uint has_beta;
  uint gated;
  float beta_scale;
  uint beta_stride;
  uint g_stride;
  uint ba_stride;
};
ARGS(conv_inputs_args)
#endif
