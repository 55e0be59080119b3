// matvec.h: contract of matvec.comp.
#ifndef MATVEC_H
#define MATVEC_H
#include "interface.h"
#define MATVEC_Y 0       // (T, N) out, f32; inout when args.add
#define MATVEC_X 1       // (T, K) in, f32
#define MATVEC_X4 2      // the same as vec4, read when ALIGNED
#define MATVEC_WEIGHTS 3 // (N, K) in, f32, f16 or bf16
#define MATVEC_BIAS 4    // (1, N) in, f32; read when args.has_bias
#define MATVEC_BINDINGS 5
#define MATVEC_SPEC_LANES 0
#define MATVEC_SPEC_ROWS 1    // outputs of a workgroup
#define MATVEC_SPEC_TOKENS 2  // >= T
#define MATVEC_SPEC_ALIGNED 3 // 1: K and x_stride are multiples of 4
#define MATVEC_SPECS 4
struct matvec_args {
  uint T;
  uint N;
  uint K;
  uint y_stride;
  uint x_stride;
  uint w_stride;
  uint first; // number of the first output: weights too large for one descriptor take several dispatches
  uint add;
  uint has_bias;
};
ARGS(matvec_args)
#endif
