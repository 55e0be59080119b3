// copy.h: contract of copy.comp.
#ifndef COPY_H
#define COPY_H
#include "interface.h"
#define COPY_TO 0   // (rows, cols) out, 32 bits
#define COPY_FROM 1 // (rows, cols) in, the same; not read when zero
#define COPY_BINDINGS 2
#define COPY_SPEC_LANES 0
#define COPY_SPEC_ALIGNED 1 // 1: cols and strides are multiples of 4, and args counts uvec4
#define COPY_SPECS 2
struct copy_args {
  uint rows;
  uint cols;
  uint to_stride;
  uint from_stride;
  uint zero; // 1: to = 0
};
ARGS(copy_args)
#endif
