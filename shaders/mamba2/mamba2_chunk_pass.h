// mamba2_chunk_pass.h: contract of mamba2_chunk_pass.comp.
#ifndef MAMBA2_CHUNK_PASS_H
#define MAMBA2_CHUNK_PASS_H
#include "mamba2_chunk.h"
#define MAMBA2_CHUNK_PASS_STATES 0    // (chunks, heads, record) inout, f32 as vec4, or f16 as uvec2 when HALVES
#define MAMBA2_CHUNK_PASS_STATE 1     // (slots, heads * N * P) inout, f32
#define MAMBA2_CHUNK_PASS_SEQUENCES 2 // (B) in, struct sequence
#define MAMBA2_CHUNK_PASS_BINDINGS 3
#define MAMBA2_CHUNK_PASS_SPEC_LANES 0
#define MAMBA2_CHUNK_PASS_SPEC_HALVES 1 // 1: records of cooperative matrices
#define MAMBA2_CHUNK_PASS_SPECS 2
struct mamba2_chunk_pass_args {
  uint C;
  uint heads;
  uint N;
  uint P;
  uint rows;  // rows of a record's state
  uint fours; // vectors of four in a row
  uint state_stride;
};
ARGS(mamba2_chunk_pass_args)
#endif
