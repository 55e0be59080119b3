// attention_matrix.h: contract of attention_matrix.comp.
#ifndef ATTENTION_MATRIX_H
#define ATTENTION_MATRIX_H
#include "control.h"
#include "interface.h"
#define ATTENTION_MATRIX_O 0         // (T, heads * d) out, f16
#define ATTENTION_MATRIX_QKV 1       // (T, heads * d + ...) in, f32
#define ATTENTION_MATRIX_CACHE_K 2   // (slots, capacity * kv_heads * d) in, f32
#define ATTENTION_MATRIX_CACHE_V 3   // as CACHE_K
#define ATTENTION_MATRIX_SEQUENCES 4 // (B) in, struct sequence
#define ATTENTION_MATRIX_BINDINGS 5
#define ATTENTION_MATRIX_SPEC_LANES 0
#define ATTENTION_MATRIX_SPEC_SUBGROUP 1
#define ATTENTION_MATRIX_SPEC_TILE_M 2
#define ATTENTION_MATRIX_SPEC_TILE_N 3
#define ATTENTION_MATRIX_SPEC_TILE_K 4
#define ATTENTION_MATRIX_SPEC_D 5
#define ATTENTION_MATRIX_SPEC_KEYS 6       // keys staged at once
#define ATTENTION_MATRIX_SPEC_GROUP 7      // query heads of a workgroup, all of one key head
#define ATTENTION_MATRIX_SPEC_AHEAD 8      // 1: the next keys and values are fetched before these are used
#define ATTENTION_MATRIX_SPEC_ALIGNED 9    // 1: d and cache_stride are multiples of 4
#define ATTENTION_MATRIX_SPEC_O_ALIGNED 10 // 1: d and o_stride are multiples of 8
#define ATTENTION_MATRIX_SPEC_LOCKSTEP 11  // 1: a subgroup runs in lockstep and needs no subgroup barrier
#define ATTENTION_MATRIX_SPECS 12
struct attention_matrix_push {
  uint heads;
  uint kv_heads;
  uint window; // 0: none
  uint capacity;
  float scale;
  uint o_stride;
  uint qkv_stride;
  uint cache_stride;
};
ARGS(attention_matrix_push)
#endif
