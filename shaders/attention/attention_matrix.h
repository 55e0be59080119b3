// attention_matrix.h: contract of attention_matrix.comp: that of attention.h, and records of parts.
#ifndef ATTENTION_MATRIX_H
#define ATTENTION_MATRIX_H
#include "attention.h"
// o is f16. Out, if SPLIT: a record of f32 for each row of each workgroup.
#define ATTENTION_MATRIX_RECORDS ATTENTION_BINDINGS
#define ATTENTION_MATRIX_BINDINGS (ATTENTION_BINDINGS + 1)
// A record, in vec4: the row's O, with columns up to a multiple of 16, then its maximum, its sum and two zeros.
#define ATTENTION_MATRIX_RECORD(d) (((d) + 15) / 16 * 4 + 1)
#define ATTENTION_MATRIX_LEAST 256 // least keys of a part; a multiple of KEYS
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
#define ATTENTION_MATRIX_SPEC_SPLIT 12     // 1: keys are cut into at most args.parts parts
#define ATTENTION_MATRIX_SPECS 13
#endif
