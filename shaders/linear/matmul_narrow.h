// matmul_narrow.h: contract of matmul_narrow.comp; built with GATED, of matmul_narrow_gated_..., with CONV, of
// matmul_narrow_conv_..., with NEXT, of matmul_narrow_next_...
#ifndef MATMUL_NARROW_H
#define MATMUL_NARROW_H
#include "conv_step.h"
#define MATMUL_NARROW_Y 0       // (T, N) out, f32; inout when args.add. GATED: (T, N) out, f16
#define MATMUL_NARROW_X 1       // (T, K) in, f16; with SQUARES, what NEXT has left
#define MATMUL_NARROW_WEIGHTS 2 // (N, K) in, f16 or bf16; GATED: (2 N, K), gate's rows, then up's
#define MATMUL_NARROW_BIAS 3    // (1, N) in, f32; read when args.has_bias
// What a product that ends in a residual stream leaves for the product that begins with its norm: each row's sums of
// squares, MATMUL_NARROW_SQUARES(SQUARES) numbers, zeros after the first SQUARES, and then what the row in X was
// multiplied by besides the norm's weight; 1 / rms of the row of each norm, which the product after the next takes for
// an estimate of its own.
#define MATMUL_NARROW_SUMS 4 // (T, MATMUL_NARROW_LEFT(SQUARES)) in, f32, read when SQUARES; NEXT: out
#define MATMUL_NARROW_RMS 5  // (T) out, f32, written when SQUARES; NEXT: in
#define MATMUL_NARROW_BINDINGS 6
#define MATMUL_NARROW_NEXT_WEIGHT 6 // (1, N) in, f32
#define MATMUL_NARROW_NEXT_H 7      // (T, N) out, f16: the next product's X
#define MATMUL_NARROW_NEXT_BINDINGS 8
#define MATMUL_NARROW_CONV_BINDINGS (MATMUL_NARROW_BINDINGS + CONV_STEP_BINDINGS) // conv_step.h
#define MATMUL_NARROW_SQUARES(parts) (((parts) + 3) / 4 * 4)
#define MATMUL_NARROW_LEFT(parts) (MATMUL_NARROW_SQUARES(parts) + 4)
#define MATMUL_NARROW_SPEC_LANES 0   // PARTS subgroups
#define MATMUL_NARROW_SPEC_PARTS 1   // of K in a workgroup, a power of two: each has a subgroup
#define MATMUL_NARROW_SPEC_TILES_T 2 // matrices along T of a workgroup
#define MATMUL_NARROW_SPEC_TILES_N 3 // matrices along N of a workgroup
#define MATMUL_NARROW_SPEC_STEP 4    // along K, a multiple of 8 and of the matrices' K; K is one of STEP
#define MATMUL_NARROW_SPEC_M 5       // the cooperative matrices, (M, K) x (K, N)
#define MATMUL_NARROW_SPEC_N 6
#define MATMUL_NARROW_SPEC_K 7
#define MATMUL_NARROW_SPEC_SQUARES 8 // sums of squares that a row comes with; 0: none, it is as it shall be
#define MATMUL_NARROW_SPEC_LENGTH 9  // of a row of x and of the weights: K above
#define MATMUL_NARROW_SPEC_PASSES 10 // workgroups that have the same outputs, each of other tokens
#define MATMUL_NARROW_SPECS 11
#define MATMUL_NARROW_NEXT_SPECS 11
#define MATMUL_NARROW_CONV_SPEC_W 11
#define MATMUL_NARROW_CONV_SPECS 12
struct matmul_narrow_args {
  uint T;
  uint N;
  uint y_stride;
  uint x_stride; // a multiple of 8
  uint w_stride;
  uint first; // number of the first output: weights too large for one descriptor take several dispatches
  uint add;
  uint has_bias;
  uint activation;             // of gate
  float eps;                   // of the norm, with SQUARES
  uint h_stride;               // of matmul_narrow_next
  STRUCT(conv_step_args) conv; // of matmul_narrow_conv
};
ARGS(matmul_narrow_args)
#endif
