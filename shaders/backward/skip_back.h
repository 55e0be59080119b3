// skip_back.h: contract of skip_back.comp.
#ifndef SKIP_BACK_H
#define SKIP_BACK_H
#include "interface.h"
#define SKIP_BACK_X 0     // (T, heads * P, more) in, f32
#define SKIP_BACK_D 1     // (1, heads or heads * P) in, f32
#define SKIP_BACK_DY 2    // (T, heads * P) in, f32
#define SKIP_BACK_DX 3    // as x, in and out
#define SKIP_BACK_PARTS 4 // (T, columns of D) out, f32: terms of dD
#define SKIP_BACK_BINDINGS 5
#define SKIP_BACK_SPEC_LANES 0
#define SKIP_BACK_SPECS 1
struct skip_back_args {
  uint T;
  uint cols;  // of D
  uint share; // elements of x that one column of D multiplies
  uint x_stride;
  uint dy_stride;
  uint dx_stride;
};
ARGS(skip_back_args)
#endif
