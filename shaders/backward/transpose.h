// transpose.h: contract of transpose.comp. Variant: FROM_F16 is transpose_halves.
#ifndef TRANSPOSE_H
#define TRANSPOSE_H
#include "interface.h"
#define TRANSPOSE_TO 0   // (cols, stride) out, f32; zeros beyond column `rows`
#define TRANSPOSE_FROM 1 // (rows, cols) in, f32; f16 with FROM_F16
#define TRANSPOSE_BINDINGS 2
#define TRANSPOSE_SPEC_TILE 0
#define TRANSPOSE_SPEC_LANES 1
#define TRANSPOSE_SPECS 2
struct transpose_args {
  uint rows;
  uint cols;
  uint to_stride;
  uint from_stride; // f16: even
};
ARGS(transpose_args)
#endif
