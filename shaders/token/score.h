// score.h: contract of score.comp.
#ifndef SCORE_H
#define SCORE_H
#include "interface.h"
#define SCORE_SCORES 0  // (T, 2) out, f32
#define SCORE_LOGITS 1  // (n, V) in, f32
#define SCORE_TARGETS 2 // (T) in, i32
#define SCORE_BINDINGS 3
#define SCORE_SPEC_LANES 0
#define SCORE_SPECS 1
struct score_args {
  uint V;
  uint logits_stride;
  uint first; // index among the T rows of the first of the n
};
ARGS(score_args)
#endif
