// gated_norm.h: contract of gated_norm.comp.
#ifndef GATED_NORM_H
#define GATED_NORM_H
#include "interface.h"
#define GATED_NORM_Y 0      // (T, E) inout, f32 or f16
#define GATED_NORM_Z 1      // (T, E) in, f32
#define GATED_NORM_WEIGHT 2 // (1, E) in, f32; not read when args.place is ABSENT
#define GATED_NORM_BINDINGS 3
#define GATED_NORM_SPEC_LANES 0
#define GATED_NORM_SPEC_VECTORS 1 // vec4 of a group in an invocation; 0: n or a stride not divisible by 4
#define GATED_NORM_SPECS 2
#define PLACE_OF_GATED 0 // as enum norm_place of host/ops/ops.h
#define PLACE_FIRST 1
#define PLACE_ABSENT 2
struct gated_norm_push {
  uint n; // elements of a group
  uint place;
  float eps;
  uint y_stride;
  uint z_stride;
};
ARGS(gated_norm_push)
#endif
