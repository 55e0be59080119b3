// gated_norm_back.h: contract of gated_norm_back.comp.
#ifndef GATED_NORM_BACK_H
#define GATED_NORM_BACK_H
#include "interface.h"
#define GATED_NORM_BACK_X 0      // (T, C) in, f32
#define GATED_NORM_BACK_GATE 1   // (T, groups * n) in, f32; with GATED
#define GATED_NORM_BACK_WEIGHT 2 // (1, n or groups * n) in, f32; not with ABSENT
#define GATED_NORM_BACK_DY 3     // (T, C) in, f32
#define GATED_NORM_BACK_DX 4     // (T, C) out, f32; with `add` in and out
#define GATED_NORM_BACK_DGATE 5  // as gate, out; with `add_gate` in and out
#define GATED_NORM_BACK_PARTS 6  // (ceil(T / ROWS), groups * n) out, f32: terms of dweight; nothing of use with ABSENT
#define GATED_NORM_BACK_BINDINGS 7
#define GATED_NORM_BACK_SPEC_LANES 0
#define GATED_NORM_BACK_SPEC_ALIGNED 1   // 1: n, `from` and the strides are multiples of 4
#define GATED_NORM_BACK_SPEC_SUBGROUPS 2 // 1: a team is a subgroup; 0: a workgroup
#define GATED_NORM_BACK_SPEC_HELD 3      // units of a group that an invocation holds
#define GATED_NORM_BACK_SPEC_PLACE 4
#define GATED_NORM_BACK_SPEC_GATED 5
#define GATED_NORM_BACK_SPECS 6
#define GATED_NORM_BACK_ROWS 16 // of a team
#define BACK_OF_GATED 0         // as enum norm_place
#define BACK_FIRST 1
#define BACK_ABSENT 2
struct gated_norm_back_args {
  uint T;
  uint cols; // C
  uint groups;
  uint n;
  uint from;
  uint weight_step; // from one group's weight to the next: n or 0
  uint x_stride;
  uint gate_stride;
  uint dy_stride;
  uint dx_stride;
  uint dgate_stride;
  float eps;
  uint add;
  uint add_gate;
};
ARGS(gated_norm_back_args)
#endif
