// adamw.h: contract of adamw.comp.
#ifndef ADAMW_H
#define ADAMW_H
#include "grid.h"
#define ADAMW_P 0 // (n / cols, cols) in and out, f32
#define ADAMW_G 1 // in, of the same shape, as the others
#define ADAMW_M 2 // in and out
#define ADAMW_V 3 // in and out
#define ADAMW_BINDINGS 4
#define ADAMW_SPEC_LANES 0
#define ADAMW_SPEC_FLAT 1 // 1: the grids are one row each
#define ADAMW_SPECS 2
struct adamw_args {
  uint n;
  uint cols;
  STRUCT(grid_args) p;
  STRUCT(grid_args) g;
  STRUCT(grid_args) m;
  STRUCT(grid_args) v;
  float factor; // of g
  float beta1;
  float rest1; // 1 - beta1
  float beta2;
  float rest2;
  float decay;  // times the rate
  float rate;   // divided by 1 - beta1^steps
  float second; // 1 / sqrt(1 - beta2^steps)
  float eps;
};
ARGS(adamw_args)
#endif
