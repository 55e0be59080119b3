// gated_norm.h: contract of gated_norm.comp.
#ifndef GATED_NORM_H
#define GATED_NORM_H
#include "interface.h"
#define GATED_NORM_Y 0      // (T, from + groups * n) out, f32 or f16
#define GATED_NORM_Z 1      // (T, groups * n) in, f32; read when GATED
#define GATED_NORM_WEIGHT 2 // (1, groups * n) or (1, n) in, f32; not read when PLACE is ABSENT
#define GATED_NORM_X 3      // (T, from + groups * n) in, as Y, and maybe the same memory
#define GATED_NORM_BINDINGS 4
#define GATED_NORM_SPEC_LANES 0
#define GATED_NORM_SPEC_VECTORS 1   // fours of a group that an invocation holds; 0: its numbers one by one
#define GATED_NORM_SPEC_SUBGROUPS 2 // 1: a group is a subgroup's; 0: a workgroup's
#define GATED_NORM_SPEC_PLACE 3
#define GATED_NORM_SPEC_GATED 4 // 1: there is a gate; 0 only when PLACE is FIRST
#define GATED_NORM_SPECS 5
#define PLACE_OF_GATED 0 // as enum norm_place of host/ops/ops.h
#define PLACE_FIRST 1
#define PLACE_ABSENT 2
struct gated_norm_args {
  uint groups;
  uint n; // numbers of a group
  float eps;
  uint x_stride;
  uint y_stride;
  uint z_stride;
  uint weight_step; // from one group's weight to the next one's: 0 or n
  uint from;        // first column of x and y; not with a gate
};
ARGS(gated_norm_args)
#endif
