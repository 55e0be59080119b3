// matmul_matrix.h: contract of matmul_matrix.comp. Variants: with EXPERTS they are matmul_matrix_experts...; those
// with TURN_X or TURN_W are kernels of the backward pass.
#ifndef MATMUL_MATRIX_H
#define MATMUL_MATRIX_H
#include "experts_tile.h"
#define MATMUL_MATRIX_Y 0       // (T, N) out, f32 (inout when args.add), or f16 when GATED
#define MATMUL_MATRIX_X 1       // (T, K) in, f32, or f16 with X_F16; (K, T) with TURN_X
#define MATMUL_MATRIX_WEIGHTS 2 // (N, K) in, any format but f32; (2 N, K) when GATED; (K, N) with TURN_W
#define MATMUL_MATRIX_BIAS 3    // (1, N) in, f32; read when args.has_bias
#define MATMUL_MATRIX_PARTS 4   // inout, f32 as vec4: partial sums of split tiles; with SPLIT
#define MATMUL_MATRIX_TICKETS 5 // inout, per split tile: how many workgroups have written theirs; 0 before and after
#define MATMUL_MATRIX_BINDINGS 6
#define MATMUL_MATRIX_ORDER 4  // (1, T) in, i32, with EXPERTS: which rows of y are of which expert
#define MATMUL_MATRIX_STARTS 5 // (1, experts + 1) in, i32, likewise
#define MATMUL_MATRIX_EXPERTS_BINDINGS 6
#define MATMUL_MATRIX_SPEC_LANES 0    // ACROSS_T * ACROSS_N subgroups
#define MATMUL_MATRIX_SPEC_TILE_T 1   // tokens of a workgroup
#define MATMUL_MATRIX_SPEC_TILE_N 2   // outputs of a workgroup
#define MATMUL_MATRIX_SPEC_TILE_K 3   // step along K, a multiple of 8 and of the coopmats' K
#define MATMUL_MATRIX_SPEC_ACROSS_T 4 // subgroups along the tile's sides
#define MATMUL_MATRIX_SPEC_ACROSS_N 5
#define MATMUL_MATRIX_SPEC_M 6 // the cooperative matrices (coopmat), (M, K) x (K, N)
#define MATMUL_MATRIX_SPEC_N 7
#define MATMUL_MATRIX_SPEC_K 8
#define MATMUL_MATRIX_SPEC_ALIGNED 9     // 1: x_stride and K are multiples of 8; 2: K is also a multiple of TILE_K.
                                         // With TURN_X or TURN_W strides are, K need not be
#define MATMUL_MATRIX_SPEC_ACTIVATION 10 // of the gate
#define MATMUL_MATRIX_SPEC_SPLIT 11      // 1: some tiles are split: several workgroups share their K
#define MATMUL_MATRIX_SPEC_FORMAT 12     // weights.glsl
#define MATMUL_MATRIX_SPECS 13
#define MATMUL_MATRIX_EXPERTS_SPECS MATMUL_MATRIX_SPECS
struct matmul_matrix_args {
  uint T;
  uint N;
  uint K;
  uint y_stride;
  uint x_stride;
  uint w_stride;
  uint first; // index of the first output: weights too large for one descriptor take several dispatches
  uint add;
  uint has_bias;
  uint direct;                     // 1: y_stride and first are multiples of 8, so that whole coopmats can be stored
  uint whole;                      // with SPLIT: the first `whole` tiles have one workgroup each
  uint parts;                      // and the others have `parts` each
  STRUCT(experts_tile_args) tiles; // with EXPERTS
};
ARGS(matmul_matrix_args)
#endif
