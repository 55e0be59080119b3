// norm_back.h: contract of norm_back.comp.
#ifndef NORM_BACK_H
#define NORM_BACK_H
#include "interface.h"
#define NORM_BACK_X 0      // (T, D) in, f32
#define NORM_BACK_WEIGHT 1 // (1, D) in, f32
#define NORM_BACK_DY 2     // (T, D) in, f32
#define NORM_BACK_DX 3     // (T, D) out, f32; with `add` in and out
#define NORM_BACK_PARTS 4  // (ceil(T / NORM_BACK_ROWS), D) out, f32: the terms of dweight
#define NORM_BACK_BINDINGS 5
#define NORM_BACK_SPEC_LANES 0
#define NORM_BACK_SPECS 1
#define NORM_BACK_ROWS 16 // of a workgroup
struct norm_back_args {
  uint T;
  uint D;
  uint x_stride;
  uint dy_stride;
  uint dx_stride;
  float eps;
  uint add;
};
ARGS(norm_back_args)
#endif
