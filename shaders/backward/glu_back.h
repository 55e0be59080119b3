// glu_back.h: contract of glu_back.comp. Variant: TO_F16 is glu_back_halves.
#ifndef GLU_BACK_H
#define GLU_BACK_H
#include "interface.h"
#define GLU_BACK_GATE 0  // (T, F) in, f32
#define GLU_BACK_X 1     // (T, F) in from column x_from on, f32
#define GLU_BACK_DY 2    // (T, F) in, f32
#define GLU_BACK_DGATE 3 // as gate, out; with `add` in and out; f16 with TO_F16
#define GLU_BACK_DX 4    // as x, likewise
#define GLU_BACK_BINDINGS 5
#define GLU_BACK_SPEC_LANES 0
#define GLU_BACK_SPEC_ALIGNED 1 // 1: F, x_from and the strides are multiples of 4
#define GLU_BACK_SPEC_ACTIVATION 2
#define GLU_BACK_SPECS 3
struct glu_back_args {
  uint T;
  uint F;
  uint dy_stride;
  uint gate_stride;
  uint x_stride;
  uint x_from;
  uint add;
};
ARGS(glu_back_args)
#endif
