// add.h: contract of add.comp.
#ifndef ADD_H
#define ADD_H
#include "interface.h"
#define ADD_Y 0 // (T, N) out, f32
#define ADD_X 1 // (T, N) in, f32; may be y
#define ADD_Z 2 // (T, N) in, f32
#define ADD_BINDINGS 3
#define ADD_SPEC_LANES 0
#define ADD_SPEC_ALIGNED 1 // 1: N and the strides count fours
#define ADD_SPECS 2
struct add_args {
  uint cols; // N
  uint y_stride;
  uint x_stride;
  uint z_stride;
};
ARGS(add_args)
#endif
