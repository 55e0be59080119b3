// conv_back.h: contract of the four kernels of a short convolution's backward pass.
//   conv_back_slopes   d = dy act'(the sum before the activation), which is computed again
//   conv_back_inputs   dx: the same filter in reverse, looking ahead, and the gradient of the history after the call
//   conv_back_history  the gradient of the history before the call
//   conv_back_weight   dweight
#ifndef CONV_BACK_H
#define CONV_BACK_H
#include "control.h"
#include "interface.h"
#define CONV_BACK_D 0         // (T, C) f32: out of slopes, else in
#define CONV_BACK_SEQUENCES 1 // (B) in, struct sequence
#define CONV_BACK_HISTORY 2   // (slots, (W - 1) * C) f32: before the call, in; or its gradient
#define CONV_BACK_X 3         // (T, C) in, f32; inputs: dx, in and out
#define CONV_BACK_WEIGHT 4    // (W, C) in, f32; weight: dweight, in and out
#define CONV_BACK_BIAS 5      // (1, C) in, f32; with has_bias
#define CONV_BACK_DY 6        // (T, C) in, f32
#define CONV_BACK_SLOPES_BINDINGS 7
#define CONV_BACK_INPUTS_BINDINGS 5
#define CONV_BACK_WEIGHT_BINDINGS 5
// conv_back_history has no x.
#define CONV_BACK_TAPS 3 // (W, C) in, f32
#define CONV_BACK_HISTORY_BINDINGS 4
#define CONV_BACK_SPEC_LANES 0
#define CONV_BACK_SLOPES_SPECS 1
#define CONV_BACK_INPUTS_SPECS 1
#define CONV_BACK_HISTORY_SPECS 1
#define CONV_BACK_WEIGHT_SPECS 1
#define CONV_BACK_COLUMNS 16 // of a workgroup of conv_back_weight
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
  uint B;
};
ARGS(conv_back_args)
#endif
