// round.h: contract of round.comp.
#ifndef ROUND_H
#define ROUND_H
#include "interface.h"
#define ROUND_TO 0   // (rows, stride) out, f16; zeros beyond column `cols`
#define ROUND_FROM 1 // (rows, cols) in, f32
#define ROUND_BINDINGS 2
#define ROUND_SPEC_LANES 0
#define ROUND_SPEC_ALIGNED 1 // cols and from_stride are multiples of 8
#define ROUND_SPECS 2
struct round_args {
  uint rows;
  uint cols;
  uint to_stride; // a multiple of 8
  uint from_stride;
};
ARGS(round_args)
#endif
