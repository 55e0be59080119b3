// attention_matrix.h: contract of attention_matrix.comp: that of attention.h.
#ifndef ATTENTION_MATRIX_H
#define ATTENTION_MATRIX_H
#include "attention.h"
#define ATTENTION_MATRIX_BINDINGS ATTENTION_BINDINGS // o is f16
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
#endif
