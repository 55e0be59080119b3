// attention_back.h: contract of attention_back_queries.comp and attention_back_keys.comp.
#ifndef ATTENTION_BACK_H
#define ATTENTION_BACK_H
#include "control.h"
#include "interface.h"
#define ATTENTION_BACK_QKV 0       // (T, (heads + 2 kv_heads) d) in, f32
#define ATTENTION_BACK_DO 1        // (T, heads d) in, f32
#define ATTENTION_BACK_DQKV 2      // as qkv, in and out
#define ATTENTION_BACK_SUMS 3      // (T, heads, 3) f32: largest score, 1 / sum e^(s - largest), delta; out of queries
#define ATTENTION_BACK_SEQUENCES 4 // (B) in, struct sequence
#define ATTENTION_BACK_BINDINGS 5
#define ATTENTION_BACK_SPEC_LANES 0
#define ATTENTION_BACK_SPECS 1
struct attention_back_args {
  uint heads;
  uint kv_heads;
  uint d;
  uint window;
  uint qkv_stride;
  uint do_stride;
  uint dqkv_stride;
  float scale;
};
ARGS(attention_back_args)
#endif
