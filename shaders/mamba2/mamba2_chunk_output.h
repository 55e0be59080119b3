// mamba2_chunk_output.h: contract of mamba2_chunk_output.comp.
#ifndef MAMBA2_CHUNK_OUTPUT_H
#define MAMBA2_CHUNK_OUTPUT_H
#include "mamba2_chunk.h"
#define MAMBA2_CHUNK_OUTPUT_Y MAMBA2_CHUNK_BINDINGS       // (T, heads * P) out, f32
#define MAMBA2_CHUNK_OUTPUT_D (MAMBA2_CHUNK_BINDINGS + 1) // (1, heads) in, f32; (1, heads * P) when args.D_per_element
#define MAMBA2_CHUNK_OUTPUT_BINDINGS (MAMBA2_CHUNK_BINDINGS + 2)
#define MAMBA2_CHUNK_OUTPUT_SPEC_LANES 0
#define MAMBA2_CHUNK_OUTPUT_SPEC_C 1 // a multiple of 4
#define MAMBA2_CHUNK_OUTPUT_SPEC_N 2
#define MAMBA2_CHUNK_OUTPUT_SPEC_P 3
#define MAMBA2_CHUNK_OUTPUT_SPEC_ALIGNED 4 // 1: P, N and xBC_stride are multiples of 4
#define MAMBA2_CHUNK_OUTPUT_SPECS 5
ARGS(mamba2_chunk_args)
#endif
