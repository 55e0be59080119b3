// matmul.h: contract of matmul.comp. Variant: EXPERTS is matmul_experts_...
#ifndef MATMUL_H
#define MATMUL_H
#include "experts_tile.h"
#define MATMUL_Y 0       // (T, N) out, f32; inout when args.add
#define MATMUL_X 1       // (T, K) in, f32
#define MATMUL_WEIGHTS 2 // (N, K) in, any format
#define MATMUL_BIAS 3    // (1, N) in, f32; read when args.has_bias
#define MATMUL_BINDINGS 4
#define MATMUL_ORDER 4  // (1, T) in, i32, with EXPERTS: which rows of y are of which expert
#define MATMUL_STARTS 5 // (1, experts + 1) in, i32, likewise
#define MATMUL_EXPERTS_BINDINGS 6
#define MATMUL_SPEC_LANES 0  // (TILE_T / SUB_T) * (TILE_N / SUB_N) * SLICES
#define MATMUL_SPEC_TILE_T 1 // tokens of a workgroup, a multiple of 32
#define MATMUL_SPEC_TILE_N 2 // outputs of a workgroup, a multiple of 32
#define MATMUL_SPEC_TILE_K 3 // step along K, a power of two of at least 8
#define MATMUL_SPEC_SUB_T 4  // tokens x outputs of an invocation, multiples of 4; a workgroup is 4 x 4 of them or more
#define MATMUL_SPEC_SUB_N 5
#define MATMUL_SPEC_SLICES 6  // a power of two, at most TILE_K / 4
#define MATMUL_SPEC_BUFFERS 7 // tiles in shared memory, 1 or 2; 2: one barrier a step
#define MATMUL_SPEC_UNROLL 8  // fours of K that the loop takes at once, a divisor of TILE_K / 4 / SLICES
#define MATMUL_SPEC_ALIGNED 9 // 1: K and x_stride are multiples of 4; 2: K also of TILE_K
#define MATMUL_SPEC_GROUPED 10 // 1: sums are sums of partial sums of four products, for smaller rounding errors
#define MATMUL_SPEC_FORMAT 11  // weights.glsl
#define MATMUL_SPECS 12
#define MATMUL_EXPERTS_SPECS MATMUL_SPECS
struct matmul_args {
  uint T;
  uint N;
  uint K;
  uint y_stride;
  uint x_stride;
  uint w_stride;
  uint first; // index of the first output: weights too large for one descriptor take several dispatches
  uint add;
  uint has_bias;
  STRUCT(experts_tile_args) tiles; // of matmul_experts
};
ARGS(matmul_args)
#endif
