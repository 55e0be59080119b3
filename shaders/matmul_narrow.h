// matmul_narrow.h: contract of matmul_narrow.comp.
#ifndef MATMUL_NARROW_H
#define MATMUL_NARROW_H
#include "interface.h"
#define MATMUL_NARROW_Y 0       // (T, N) out, f32; inout when args.add
#define MATMUL_NARROW_X 1       // (TILES_T * M, K) in, f16; rows from T on may hold anything
#define MATMUL_NARROW_WEIGHTS 2 // (N, K) in, f16 or bf16
#define MATMUL_NARROW_BIAS 3    // (1, N) in, f32; read when args.has_bias
#define MATMUL_NARROW_BINDINGS 4
#define MATMUL_NARROW_SPEC_LANES 0     // PARTS subgroups
#define MATMUL_NARROW_SPEC_PARTS 1     // of K, a power of two: each has a subgroup
#define MATMUL_NARROW_SPEC_TILES_T 2   // matrices along T: all tokens
#define MATMUL_NARROW_SPEC_TILES_N 3   // matrices along N of a workgroup
#define MATMUL_NARROW_SPEC_STEP 4      // along K, a multiple of 8 and of the matrices' K; K is one of PARTS * STEP
#define MATMUL_NARROW_SPEC_M 5         // the cooperative matrices, (M, K) x (K, N)
#define MATMUL_NARROW_SPEC_N 6
#define MATMUL_NARROW_SPEC_K 7
#define MATMUL_NARROW_SPECS 8
struct matmul_narrow_args {
  uint T;
  uint N;
  uint K;
  uint y_stride;
  uint x_stride; // a multiple of 8
  uint w_stride;
  uint first; // number of the first output: weights too large for one descriptor take several dispatches
  uint add;
  uint has_bias;
};
ARGS(matmul_narrow_args)
#endif
