// conv_step.h: arguments of a product of single tokens whose outputs partly pass through a short convolution.
#ifndef CONV_STEP_H
#define CONV_STEP_H
#include "control.h"
#include "interface.h"
// Bindings, after those of the product.
#define CONV_STEP_Y 0         // (T, C) out, f32
#define CONV_STEP_WEIGHT 1    // (CONV_W, C) in, f32
#define CONV_STEP_BIAS 2      // (1, C) in, f32; read when has_bias
#define CONV_STEP_HISTORY 3   // (slots, (CONV_W - 1) * C) inout, f32, oldest first
#define CONV_STEP_SEQUENCES 4 // (B) in, struct sequence, of at most 1 token each
#define CONV_STEP_BINDINGS 5
struct conv_step_args {
  uint from; // output that is the first channel
  uint C;
  uint silu_from; // channels from here on have SiLU
  uint has_bias;
  uint y_stride;
  uint weight_stride;
  uint history_stride;
  uint B;
};
#endif
