// attention_step.h: contract of attention_step.comp.
#ifndef ATTENTION_STEP_H
#define ATTENTION_STEP_H
#include "control.h"
#include "interface.h"
#define ATTENTION_STEP_O 0         // (B, heads * d) out
#define ATTENTION_STEP_QKV 1       // (B, heads * d + ...) in, f32
#define ATTENTION_STEP_CACHE_K 2   // (slots, capacity * kv_heads * d) in, f32
#define ATTENTION_STEP_CACHE_V 3   // as CACHE_K
#define ATTENTION_STEP_SEQUENCES 4 // (B) in, struct sequence
#define ATTENTION_STEP_PARTS 5     // inout, words: a counter (0 before) per workgroup of one part; then records
#define ATTENTION_STEP_BINDINGS 6
#define ATTENTION_STEP_SPEC_LANES 0
#define ATTENTION_STEP_SPEC_D 1
#define ATTENTION_STEP_SPEC_QUERIES 2 // query heads of a workgroup, all of one key head
#define ATTENTION_STEP_SPEC_ALIGNED 3 // 1: d and cache_stride are multiples of 4
#define ATTENTION_STEP_SPECS 4
#define ATTENTION_STEP_RECORD(D) ((D) + 2) // words of a part's record for a head: maximum, sum, o before division
struct attention_step_push {
  uint heads;
  uint kv_heads;
  uint window; // 0: none
  uint capacity;
  float scale;
  uint o_stride;
  uint qkv_stride;
  uint cache_stride;
};
ARGS(attention_step_push)
#endif
