// glu.h: contract of glu.comp. Variant: X16 is glu_x16_...
#ifndef GLU_H
#define GLU_H
#include "interface.h"
#define GLU_Y 0    // (T, F) out, f32 or f16
#define GLU_GATE 1 // (T, F) in, f32
#define GLU_X 2    // (T, x_from + F) in, f32, or f16 with X16; the last F columns are read
#define GLU_BINDINGS 3
#define GLU_SPEC_LANES 0
#define GLU_SPEC_ALIGNED 1 // 1: F, x_from and the strides are multiples of 4
#define GLU_SPECS 2
struct glu_args {
  uint T;
  uint F;
  uint activation;
  uint y_stride;
  uint gate_stride;
  uint x_stride;
  uint x_from;
};
ARGS(glu_args)
#endif
