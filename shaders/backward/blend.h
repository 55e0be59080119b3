// blend.h: contract of blend.comp.
#ifndef BLEND_H
#define BLEND_H
#include "grid.h"
#define BLEND_TO 0 // (n / cols, cols) out, f32
#define BLEND_X 1  // in, of the same shape
#define BLEND_Y 2  // in, of the same shape, with has_y
#define BLEND_BINDINGS 3
#define BLEND_SPEC_LANES 0
#define BLEND_SPEC_FLAT 1 // 1: the grids are one row each
#define BLEND_SPECS 2
struct blend_args {
  uint n;
  uint cols;
  STRUCT(grid_args) to;
  STRUCT(grid_args) x;
  STRUCT(grid_args) y;
  uint has_y;
  float factor; // of y
  float plus;
};
ARGS(blend_args)
#endif
