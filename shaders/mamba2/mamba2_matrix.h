// mamba2_matrix.h: the specialization constants of mamba2_matrix_state.comp and mamba2_matrix_output.comp.
#ifndef MAMBA2_MATRIX_H
#define MAMBA2_MATRIX_H
#include "mamba2_chunk.h"
#define MAMBA2_MATRIX_SPEC_LANES 0
#define MAMBA2_MATRIX_SPEC_SUBGROUP 1
#define MAMBA2_MATRIX_SPEC_TILE_M 2
#define MAMBA2_MATRIX_SPEC_TILE_N 3
#define MAMBA2_MATRIX_SPEC_TILE_K 4
#define MAMBA2_MATRIX_SPEC_C 5 // tokens of a chunk, TILE_M per subgroup
#define MAMBA2_MATRIX_SPEC_N 6
#define MAMBA2_MATRIX_SPEC_P 7
#define MAMBA2_MATRIX_SPEC_HEADS 8     // most heads of a workgroup, all of one group
#define MAMBA2_MATRIX_SPEC_ALIGNED 9   // 1: P, N and xBC_stride are multiples of 4
#define MAMBA2_MATRIX_SPEC_FOURS 10    // 1: P and y_stride are multiples of 4
#define MAMBA2_MATRIX_SPEC_LOCKSTEP 11 // 1: a subgroup runs in lockstep and needs no subgroup barrier
#define MAMBA2_MATRIX_SPECS 12
ARGS(mamba2_chunk_args)
#endif
