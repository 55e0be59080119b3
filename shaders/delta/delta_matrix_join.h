// delta_matrix_join.h: contract of delta_matrix_join.comp.
#ifndef DELTA_MATRIX_JOIN_H
#define DELTA_MATRIX_JOIN_H
#include "delta_matrix.h"
#define DELTA_MATRIX_JOIN_MAPS 0      // (B * segments, Hv, map) in, f32 as vec4; inout, f16 as uvec4
#define DELTA_MATRIX_JOIN_STATE 1     // (slots, Hv * Dk * Dv) out, f32
#define DELTA_MATRIX_JOIN_SEQUENCES 2 // (B) in, struct sequence
#define DELTA_MATRIX_JOIN_BINDINGS 3
#define DELTA_MATRIX_JOIN_SPEC_LANES 0 // DK / TILE_M subgroups
#define DELTA_MATRIX_JOIN_SPEC_SUBGROUP 1
#define DELTA_MATRIX_JOIN_SPEC_TILE_M 2
#define DELTA_MATRIX_JOIN_SPEC_TILE_N 3
#define DELTA_MATRIX_JOIN_SPEC_TILE_K 4
#define DELTA_MATRIX_JOIN_SPEC_DK 5    // as in delta_matrix_scan.h
#define DELTA_MATRIX_JOIN_SPEC_TILES 6 // tiles of value columns of a workgroup; divides DVP / TILE_N
#define DELTA_MATRIX_JOIN_SPECS 7
struct delta_matrix_join_args {
  uint Hv;
  uint Dk;
  uint Dv;
  uint DVP;
  uint state_stride;
  uint segments;
  uint tokens; // tokens of a chunk
};
ARGS(delta_matrix_join_args)
#endif
