// matmul_narrow.h: contract of matmul_narrow.comp. Variants: GATED is matmul_narrow_gated_..., CONV is
// matmul_narrow_conv_..., NEXT is matmul_narrow_next_...
#ifndef MATMUL_NARROW_H
#define MATMUL_NARROW_H
#include "conv_step.h"
#define MATMUL_NARROW_Y 0       // (T, N) out, f32; inout when args.add. GATED: (T, N) out, f16
#define MATMUL_NARROW_X 1       // (T, K) in, f16; with SQUARES, the output of NEXT
#define MATMUL_NARROW_WEIGHTS 2 // (N, K) in, any format but f32; GATED: (2 N, K), gate's rows, then up's
#define MATMUL_NARROW_BIAS 3    // (1, N) in, f32; read when args.has_bias
// A product that adds to a residual stream (NEXT) prepares the norm for the product after it (SQUARES). SUMS has for
// each row its sums of squares, MATMUL_NARROW_SQUARES(SQUARES) elements with zeros after the first SQUARES, then the
// factor that the row in X was multiplied by besides the norm's weight. RMS has the 1 / rms of each row of the last
// norm, which the product uses as an estimate of the next.
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
#define MATMUL_NARROW_SPEC_PARTS 1   // subgroups that split K in a workgroup, a power of two
#define MATMUL_NARROW_SPEC_TILES_T 2 // coopmats along T of a workgroup
#define MATMUL_NARROW_SPEC_TILES_N 3 // coopmats along N of a workgroup
#define MATMUL_NARROW_SPEC_STEP 4    // step along K, a multiple of 8 and of the coopmats' K; K is a multiple of STEP
#define MATMUL_NARROW_SPEC_M 5       // the cooperative matrices (coopmat), (M, K) x (K, N)
#define MATMUL_NARROW_SPEC_N 6
#define MATMUL_NARROW_SPEC_K 7
#define MATMUL_NARROW_SPEC_SQUARES 8 // sums of squares per row of X; 0: none, X is not scaled
#define MATMUL_NARROW_SPEC_LENGTH 9  // K of the product: the length of a row of x and of the weights
#define MATMUL_NARROW_SPEC_PASSES 10 // workgroups with the same outputs but other tokens
#define MATMUL_NARROW_SPEC_FORMAT 11 // weights.glsl
#define MATMUL_NARROW_SPEC_ACTIVATION 12 // of the gate
#define MATMUL_NARROW_SPECS 13
#define MATMUL_NARROW_NEXT_SPECS 13
#define MATMUL_NARROW_CONV_SPEC_W 13
#define MATMUL_NARROW_CONV_SPECS 14
struct matmul_narrow_args {
  uint T;
  uint N;
  uint y_stride;
  uint x_stride; // a multiple of 8
  uint w_stride;
  uint first; // index of the first output: weights too large for one descriptor take several dispatches
  uint add;
  uint has_bias;
  float eps;                   // of the norm, with SQUARES
  uint h_stride;               // of matmul_narrow_next
  STRUCT(conv_step_args) conv; // of matmul_narrow_conv
};
ARGS(matmul_narrow_args)
#endif
