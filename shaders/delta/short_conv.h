// short_conv.h: contract of short_conv.comp.
#ifndef SHORT_CONV_H
#define SHORT_CONV_H
#include "control.h"
#include "interface.h"
#define SHORT_CONV_Y 0         // (T, C and the padding of keys) out, f32 or f16
#define SHORT_CONV_X 1         // (T, C) in, f32
#define SHORT_CONV_WEIGHT 2    // (W, C) in, f32
#define SHORT_CONV_BIAS 3      // (1, C) in, f32; read when args.has_bias
#define SHORT_CONV_HISTORY 4   // (slots, (W - 1) * C) inout, f32, oldest first
#define SHORT_CONV_SEQUENCES 5 // (B) in, struct sequence
#define SHORT_CONV_BINDINGS 6
#define SHORT_CONV_SPEC_LANES 0
#define SHORT_CONV_SPEC_W 1
#define SHORT_CONV_SPEC_RUN 2 // tokens of an invocation
#define SHORT_CONV_SPECS 3
struct short_conv_args {
  uint C;
  uint silu_from; // channels from here on have SiLU
  uint y_stride;
  uint x_stride;
  uint weight_stride;
  uint history_stride;
  uint has_bias;
  uint keys; // the first channels are keys of Dk elements, which begin every `pitch` elements in y
  uint Dk;   // not 0
  uint pitch;
};
ARGS(short_conv_args)
#endif
