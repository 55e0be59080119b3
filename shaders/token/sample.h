// sample.h: contract of sample.comp.
#ifndef SAMPLE_H
#define SAMPLE_H
#include "control.h"
#include "interface.h"
#define SAMPLE_TOKENS 0    // (B) out, i32
#define SAMPLE_SEQUENCES 1 // (B) inout, struct sequence
#define SAMPLE_SEEN 2      // (slots, ceil(V / 32)) inout, i32
#define SAMPLE_LOGITS 3    // (slots, V) in, f32
#define SAMPLE_SAMPLING 4  // (B) in, struct sampling
#define SAMPLE_BINDINGS 5
#define SAMPLE_SPEC_LANES 0
#define SAMPLE_SPECS 1
struct sample_args {
  uint V;
  uint logits_stride;
  uint seen_stride;
};
ARGS(sample_args)
#endif
