// rope_back.h: contract of rope_back.comp.
#ifndef ROPE_BACK_H
#define ROPE_BACK_H
#include "control.h"
#include "interface.h"
#define ROPE_BACK_DY 0        // (T, cols) in, f32
#define ROPE_BACK_DX 1        // (T, cols) in and out, f32
#define ROPE_BACK_TABLE 2     // (1024, r) in, f32; r > 0
#define ROPE_BACK_SEQUENCES 3 // (B) in, struct sequence
#define ROPE_BACK_BINDINGS 4
#define ROPE_BACK_SPEC_LANES 0
#define ROPE_BACK_SPECS 1
struct rope_back_args {
  uint cols;
  uint heads; // of q and k
  uint d;
  uint r;
  uint dy_stride;
  uint dx_stride;
  uint table_stride;
};
ARGS(rope_back_args)
#endif
