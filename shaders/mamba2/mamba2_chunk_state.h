// mamba2_chunk_state.h: contract of mamba2_chunk_state.comp.
#ifndef MAMBA2_CHUNK_STATE_H
#define MAMBA2_CHUNK_STATE_H
#include "mamba2_chunk.h"
#define MAMBA2_CHUNK_STATE_BINDINGS MAMBA2_CHUNK_BINDINGS
#define MAMBA2_CHUNK_STATE_SPEC_LANES 0
#define MAMBA2_CHUNK_STATE_SPEC_C 1
#define MAMBA2_CHUNK_STATE_SPEC_N 2
#define MAMBA2_CHUNK_STATE_SPEC_P 3
#define MAMBA2_CHUNK_STATE_SPEC_ALIGNED 4 // 1: P, N and xBC_stride are multiples of 4
#define MAMBA2_CHUNK_STATE_SPECS 5
ARGS(mamba2_chunk_args)
#endif
