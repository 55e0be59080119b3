// delta_matrix_reach.h: contract of delta_matrix_reach.comp.
#ifndef DELTA_MATRIX_REACH_H
#define DELTA_MATRIX_REACH_H
#include "delta_matrix.h"
#define DELTA_MATRIX_REACH_O 0         // (T, Hv * Dv) inout, f32 or f16; UNIT_O at a time
#define DELTA_MATRIX_REACH_REACH 1     // (T, Hv, DK) in, f16 as uvec4
#define DELTA_MATRIX_REACH_MAPS 2      // (B * segments, Hv, map) in, f16 as uvec4
#define DELTA_MATRIX_REACH_SEQUENCES 3 // (B) in, struct sequence
#define DELTA_MATRIX_REACH_BINDINGS 4
#define DELTA_MATRIX_REACH_SPEC_LANES 0 // COMPUTERS * SUBGROUP
#define DELTA_MATRIX_REACH_SPEC_SUBGROUP 1
#define DELTA_MATRIX_REACH_SPEC_TILE_M 2
#define DELTA_MATRIX_REACH_SPEC_TILE_N 3
#define DELTA_MATRIX_REACH_SPEC_TILE_K 4
#define DELTA_MATRIX_REACH_SPEC_DK 5        // as in delta_matrix_scan.h, so that its columns divide DVP
#define DELTA_MATRIX_REACH_SPEC_COMPUTERS 6 //
#define DELTA_MATRIX_REACH_SPEC_TILES 7     //
#define DELTA_MATRIX_REACH_SPEC_UNIT_O 8    //
#define DELTA_MATRIX_REACH_SPECS 9
#define DELTA_MATRIX_REACH_ROWS 32 // tokens of a product
struct delta_matrix_reach_args {
  uint Hv;
  uint Dv;
  uint DVP;
  uint o_stride;
  uint segments;
  uint tokens; // tokens of a chunk
};
ARGS(delta_matrix_reach_args)
#endif
