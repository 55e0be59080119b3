// attention_step.h: contract of attention_step.comp: that of attention.h, with more bindings.
#ifndef ATTENTION_STEP_H
#define ATTENTION_STEP_H
#include "attention.h"
// The caches are inout if JOINED; qkv then also has the columns of the gate.
#define ATTENTION_STEP_PARTS 5  // inout, words: a counter (0 before) for each head of a sequence; then records
#define ATTENTION_STEP_TABLE 6  // (4 * 256, r) in, f32: rope_append.h; read when JOINED and args.rotary
#define ATTENTION_STEP_WEIGHT 7 // (1, d) or (1, (heads + kv_heads) * d) in, f32; read when NORM
#define ATTENTION_STEP_BINDINGS 8
#define ATTENTION_STEP_SPEC_LANES 0
#define ATTENTION_STEP_SPEC_D 1
#define ATTENTION_STEP_SPEC_QUERIES 2 // most query heads of a workgroup, all of one key head
#define ATTENTION_STEP_SPEC_ALIGNED 3 // 1: d and cache_stride are multiples of 4
#define ATTENTION_STEP_SPEC_JOINED 4  // 1: qkv is as projected: rope_append, and the gate if there is one, are joined
#define ATTENTION_STEP_SPEC_NORM 5    // 1: so is the norm of each head of q and k
#define ATTENTION_STEP_SPEC_BATCH 6   // loads at once of values, or of parts' results; up to twice as many of keys
#define ATTENTION_STEP_SPEC_ACTIVATION 7 // of the gate
#define ATTENTION_STEP_SPEC_LONE 8 // 1: one sequence, in row 0 and slot 0
#define ATTENTION_STEP_SPECS 9
#define ATTENTION_STEP_RECORD(D) ((D) + 2) // words of a part's record for a head: maximum, sum, o before division
#endif
