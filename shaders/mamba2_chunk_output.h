// mamba2_chunk_output.h: contract of mamba2_chunk_output.comp.
#ifndef MAMBA2_CHUNK_OUTPUT_H
#define MAMBA2_CHUNK_OUTPUT_H
#include "mamba2_chunk.h"
#define MAMBA2_CHUNK_OUTPUT_Y 0         // (T, heads * P) out, f32
#define MAMBA2_CHUNK_OUTPUT_XBC 1       // (T, heads * P + 2 * groups * N) in, f32
#define MAMBA2_CHUNK_OUTPUT_XBC4 2      // the same as vec4, read when ALIGNED
#define MAMBA2_CHUNK_OUTPUT_STATES 3    // (chunks, heads, record) in, f32 as vec4
#define MAMBA2_CHUNK_OUTPUT_DT 4        // (T, heads) in, f32
#define MAMBA2_CHUNK_OUTPUT_G 5         // (T, heads) in, f32
#define MAMBA2_CHUNK_OUTPUT_D 6         // (1, heads) in, f32; (1, heads * P) when args.D_per_element
#define MAMBA2_CHUNK_OUTPUT_SEQUENCES 7 // (B) in, struct sequence
#define MAMBA2_CHUNK_OUTPUT_BINDINGS 8
#define MAMBA2_CHUNK_OUTPUT_SPEC_LANES 0
#define MAMBA2_CHUNK_OUTPUT_SPEC_C 1 // a multiple of 4
#define MAMBA2_CHUNK_OUTPUT_SPEC_N 2
#define MAMBA2_CHUNK_OUTPUT_SPEC_P 3
#define MAMBA2_CHUNK_OUTPUT_SPEC_ALIGNED 4 // 1: P, N and xBC_stride are multiples of 4
#define MAMBA2_CHUNK_OUTPUT_SPECS 5
ARGS(mamba2_chunk_args)
#endif
