// attention_join.h: contract of attention_join.comp. Its push constants are attention_matrix.comp's.
#ifndef ATTENTION_JOIN_H
#define ATTENTION_JOIN_H
#include "attention_matrix.h"
#define ATTENTION_JOIN_O 0         // as ATTENTION_O, f16
#define ATTENTION_JOIN_RECORDS 1   // in, as ATTENTION_MATRIX_RECORDS
#define ATTENTION_JOIN_SEQUENCES 2 // as ATTENTION_SEQUENCES
#define ATTENTION_JOIN_BINDINGS 3
#define ATTENTION_JOIN_SPEC_LANES 0
#define ATTENTION_JOIN_SPEC_D 1
#define ATTENTION_JOIN_SPEC_KEYS 2  // these three as attention_matrix.comp has them
#define ATTENTION_JOIN_SPEC_GROUP 3
#define ATTENTION_JOIN_SPEC_ROWS 4  // rows of its workgroup
#define ATTENTION_JOIN_SPECS 5
#endif
