// conv_back.h: contract of the three kernels of a short convolution's backward pass.
//   conv_back_slopes   d = dy act'(the sum before the activation), which is computed again, and terms of dweight
//   conv_back_inputs   dx: the same filter in reverse, looking ahead, and the gradient of the history after the call
//   conv_back_history  the gradient of the history before the call
#ifndef CONV_BACK_H
#define CONV_BACK_H
#include "control.h"
#include "interface.h"
#define CONV_BACK_D 0         // (T, C) f32: out of slopes, else in
#define CONV_BACK_SEQUENCES 1 // (B) in, struct sequence
#define CONV_BACK_HISTORY 2   // (slots, (W - 1) * C) f32: before the call, in; or its gradient
#define CONV_BACK_X 3         // (T, C) in, f32; inputs: dx, out, and with `add` in
#define CONV_BACK_WEIGHT 4    // (W, C) in, f32
#define CONV_BACK_BIAS 5      // (1, C) in, f32; with has_bias
#define CONV_BACK_DY 6        // (T, C) in, f32
#define CONV_BACK_PARTS 7 // (B * blocks, W * C) out, f32: terms of dweight of CONV_BACK_TOKENS tokens; with has_parts
#define CONV_BACK_SLOPES_BINDINGS 8
#define CONV_BACK_INPUTS_BINDINGS 5
// conv_back_history has no x.
#define CONV_BACK_TAPS 3 // (W, C) in, f32
#define CONV_BACK_HISTORY_BINDINGS 4
#define CONV_BACK_SPEC_LANES 0
#define CONV_BACK_SPEC_W 1       // slopes, inputs
#define CONV_BACK_SPEC_ALIGNED 2 // slopes, inputs; 1: C and the strides are multiples of 4
#define CONV_BACK_SLOPES_SPECS 3
#define CONV_BACK_INPUTS_SPECS 3
#define CONV_BACK_HISTORY_SPECS 1
#define CONV_BACK_TOKENS 32 // of an invocation of slopes and inputs
struct conv_back_args {
  uint W;
  uint C;
  uint silu_from;
  uint has_bias;
  uint has_history;
  uint x_stride; // of dx
  uint weight_stride;
  uint dy_stride;
  uint history_stride;
  uint has_parts;
  uint add; // inputs
};
ARGS(conv_back_args)
#endif
