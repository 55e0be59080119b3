// rope_append.h: contract of rope_append.comp.
#ifndef ROPE_APPEND_H
#define ROPE_APPEND_H
#include "control.h"
#include "interface.h"
#define ROPE_APPEND_QKV 0       // (T, heads * d + 2 * kv_heads * d) inout, f32: q, k, v
#define ROPE_APPEND_CACHE_K 1   // (slots, capacity * kv_heads * d) out, f32
#define ROPE_APPEND_CACHE_V 2   // the same
#define ROPE_APPEND_TABLE 3     // (4 * 256, r) in, f32: r/2 cosines, then r/2 sines
#define ROPE_APPEND_SEQUENCES 4 // (B) in, struct sequence
#define ROPE_APPEND_PARTS 5     // out, words: sets the first `counters` of every sequence to 0 (attention_step.h)
#define ROPE_APPEND_BINDINGS 6
#define ROPE_APPEND_SPEC_LANES 0
#define ROPE_APPEND_SPECS 1
struct rope_append_args {
  uint heads;
  uint kv_heads;
  uint d;
  uint capacity;
  uint qkv_stride;
  uint cache_stride;
  uint table_stride;
  uint counters; // 0 or heads
  uint rotary;   // r: elements of a head that are rotated, at most d
};
ARGS(rope_append_args)
#endif
