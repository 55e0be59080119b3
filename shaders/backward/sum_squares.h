// sum_squares.h: contract of sum_squares.comp.
#ifndef SUM_SQUARES_H
#define SUM_SQUARES_H
#include "grid.h"
#define SUM_SQUARES_SUMS 0 // (first + groups, 2) out, f32: a sum and what it lacks
#define SUM_SQUARES_FROM 1 // (n / cols, cols) in, f32
#define SUM_SQUARES_BINDINGS 2
#define SUM_SQUARES_SPEC_LANES 0
#define SUM_SQUARES_SPEC_FLAT 1 // 1: the grids are one row each
#define SUM_SQUARES_SPECS 2
struct sum_squares_args {
  uint n; // numbers, of which a workgroup takes `each`
  uint cols;
  uint each;
  uint first; // the sum of workgroup 0
  float factor;
  STRUCT(grid_args) from;
};
ARGS(sum_squares_args)
#endif
