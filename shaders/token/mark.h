// mark.h: contract of mark.comp.
#ifndef MARK_H
#define MARK_H
#include "control.h"
#include "interface.h"
#define MARK_SEEN 0      // (slots, ceil(V / 32)) inout, i32
#define MARK_TOKENS 1    // (T) in, i32
#define MARK_SEQUENCES 2 // (B) in, struct sequence
#define MARK_BINDINGS 3
#define MARK_SPEC_LANES 0
#define MARK_SPECS 1
struct mark_args {
  uint seen_stride;
};
ARGS(mark_args)
#endif
