// transpose.h: contract of transpose.comp. Variants: `rounded` writes f16; `halves` also reads it.
#ifndef TRANSPOSE_H
#define TRANSPOSE_H
#include "interface.h"
#define TRANSPOSE_TO 0   // (cols, stride) out, f32 or f16; zeros beyond column `rows`
#define TRANSPOSE_FROM 1 // (rows, cols) in, f32 or f16
#define TRANSPOSE_BINDINGS 2
#define TRANSPOSE_SPEC_TILE 0 // even
#define TRANSPOSE_SPEC_LANES 1
#define TRANSPOSE_SPECS 2
struct transpose_args {
  uint rows;
  uint cols;
  uint to_stride;   // f16: even
  uint from_stride; // likewise
};
ARGS(transpose_args)
#endif
