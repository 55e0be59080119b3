// attention_step.h: contract of attention_step.comp: that of attention.h, with one more binding.
#ifndef ATTENTION_STEP_H
#define ATTENTION_STEP_H
#include "attention.h"
#define ATTENTION_STEP_PARTS 5     // inout, words: a counter (0 before) per workgroup of one part; then records
#define ATTENTION_STEP_BINDINGS 6
#define ATTENTION_STEP_SPEC_LANES 0
#define ATTENTION_STEP_SPEC_D 1
#define ATTENTION_STEP_SPEC_QUERIES 2 // query heads of a workgroup, all of one key head
#define ATTENTION_STEP_SPEC_ALIGNED 3 // 1: d and cache_stride are multiples of 4
#define ATTENTION_STEP_SPECS 4
#define ATTENTION_STEP_RECORD(D) ((D) + 2) // words of a part's record for a head: maximum, sum, o before division
#endif
