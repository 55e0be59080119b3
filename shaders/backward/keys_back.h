// keys_back.h: contract of keys_back.comp.
#ifndef KEYS_BACK_H
#define KEYS_BACK_H
#include "interface.h"
#include "key_norm.h"
#define KEYS_BACK_X 0  // (T, cols) in, f32: before activation and norm
#define KEYS_BACK_Y 1  // (T, cols) in, f32: after them
#define KEYS_BACK_DY 2 // (T, cols) in, f32
#define KEYS_BACK_DX 3 // (T, cols) out, f32; with `add` in and out
#define KEYS_BACK_BINDINGS 4
#define KEYS_BACK_SPEC_LANES 0
#define KEYS_BACK_SPECS 1
#define KEYS_BACK_ROWS 16 // of a workgroup, whose subgroups share them
struct keys_back_args {
  uint T;
  uint cols;
  uint heads;
  uint Dk;
  uint activation;
  uint norm;
  uint x_stride;
  uint y_stride;
  uint dy_stride;
  uint dx_stride;
  uint add;
};
ARGS(keys_back_args)
#endif
