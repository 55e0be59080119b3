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
#define SAMPLE_PARTS 5     // (B, any): what a dispatch with PARTS writes, and one with args.parts reads
#define SAMPLE_BINDINGS 6
#define SAMPLE_SPEC_LANES 0
#define SAMPLE_SPEC_PARTS 1 // 1: looks for the largest logit of each part
#define SAMPLE_SPECS 2
struct sample_args {
  uint V;
  uint logits_stride;
  uint seen_stride;
  uint parts;        // of the vocabulary, at most as many as invocations; 0: no dispatch has looked at them
  uint part;         // log2 of the ids of a part, but for the last
  uint parts_stride; // 32-bit words
};
ARGS(sample_args)
#endif
