// attention.h: contract of attention.comp, and what the other kernels of attention share of it.
#ifndef ATTENTION_H
#define ATTENTION_H
#include "control.h"
#include "interface.h"
#define ATTENTION_O 0         // (T, heads * d) out, f32 or f16
#define ATTENTION_QKV 1       // (T, heads * d + ...) in, f32
#define ATTENTION_CACHE_K 2   // (slots, capacity * kv_heads * d) in, f32
#define ATTENTION_CACHE_V 3   // as CACHE_K
#define ATTENTION_SEQUENCES 4 // (B) in, struct sequence
#define ATTENTION_BINDINGS 5
#define ATTENTION_SPEC_LANES 0
#define ATTENTION_SPEC_D 1
#define ATTENTION_SPEC_QUERIES 2 // tokens of a workgroup
#define ATTENTION_SPEC_ALIGNED 3 // 1: d and cache_stride are multiples of 4
#define ATTENTION_SPECS 4
struct attention_push {
  uint heads;
  uint kv_heads;
  uint window; // 0: none
  uint capacity;
  float scale;
  uint o_stride;
  uint qkv_stride;
  uint cache_stride;
  uint parts;       // of attention_step and attention_matrix: the most parts of the keys
  // From here on of attention_step.
  uint single;      // workgroups that a group of query heads is spread over while its parts are fewer
  uint table_stride;
  uint rotary;      // elements of a head that are rotated
  uint weight_step; // from one head's weight of the norm to the next one's: 0 or d
  float eps;        // of the norm
  uint gate;        // column of qkv where the output gate begins; 0: there is none
};
ARGS(attention_push)
#endif
