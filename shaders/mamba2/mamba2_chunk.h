// mamba2_chunk.h: the order of chunks in the chunkwise Mamba-2 (SSD), and the records that its kernels pass on.
//
// Sequence s has ceil(T_s / C) chunks; the chunks of all sequences are numbered consecutively. For chunk c and head j,
// record c * heads + j of `states` holds, in vectors of four (a vec4, or four f16 with cooperative matrices, coopmat):
//   (N, ceil(P / 4))  what the chunk adds to the state, sum_t e^(G_last - G_t) dt_t B_t^T x_t (from chunk_state);
//                     then the state before the chunk (from chunk_pass)
//   then              x: e^G_last, the decay of the state over the chunk. With coopmat also
//                     y: a factor of what the chunk adds, whose f16 are at most C
//                     z: for a sequence's first chunk, the largest element of the state before it, all from chunk_state
//                     w: a factor of the state before the chunk, whose f16 are at most 2^15 (from chunk_pass)
// G_t is the sum of the chunk's g up to and including token t. With coopmat, N and P are padded with zeros to multiples
// of 16.
#ifndef MAMBA2_CHUNK_H
#define MAMBA2_CHUNK_H
#include "control.h"
#include "interface.h"
#define MAMBA2_CHUNK_RECORD(N, P) ((N) * (((P) + 3) / 4) + 1) // vec4 of a record
#define MAMBA2_MATRIX_RECORD(N, P) ((N) * (P) / 4 + 2)        // vectors of four f16; whole 16 bytes
// Bindings of chunk_state and chunk_output, with and without coopmat; each has more after these.
#define MAMBA2_CHUNK_STATES 0    // (chunks, heads, record) f32 as vec4, with coopmat f16 in eights; out in chunk_state
#define MAMBA2_CHUNK_XBC 1       // (T, heads * P + 2 * groups * N) in, f32
#define MAMBA2_CHUNK_DT 2        // (T, heads) in, f32
#define MAMBA2_CHUNK_G 3         // (T, heads) in, f32
#define MAMBA2_CHUNK_SEQUENCES 4 // (B) in, struct sequence
#define MAMBA2_CHUNK_BINDINGS 5
// Their push constants.
struct mamba2_chunk_args {
  uint B;
  uint heads;
  uint groups;
  uint D_per_element;
  uint y_stride;
  uint xBC_stride;
  uint dt_stride;
  uint g_stride;
  uint state_stride;
};
#endif
