// scatter.h: contract of scatter.comp.
#ifndef SCATTER_H
#define SCATTER_H
#include "control.h"
#include "interface.h"
#define SCATTER_TO 0        // (slots, cols) out, 32 bits
#define SCATTER_FROM 1      // (B, cols) in, the same
#define SCATTER_SEQUENCES 2 // (B) in, struct sequence
#define SCATTER_BINDINGS 3
#define SCATTER_SPEC_LANES 0
#define SCATTER_SPECS 1
struct scatter_args {
  uint cols;
  uint to_stride;
  uint from_stride;
};
ARGS(scatter_args)
#endif
