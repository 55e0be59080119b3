// mamba2_chunk.h: how the three kernels of the chunkwise Mamba-2 (SSD) number chunks, and what passes between them.
//
// Sequence s has ceil(T_s / C) chunks; chunks of all sequences are numbered one after the other. For chunk c and head
// j, record c * heads + j of `states` holds, as vec4:
//   (N, ceil(P / 4))  what the chunk adds to the state, sum_t e^(G_last - G_t) dt_t B_t^T x_t (from chunk_state);
//                     then the state before the chunk (from chunk_pass)
//   (1)               x: e^G_last, what is left of the state before the chunk
// G_t is the sum of the chunk's g up to and including token t.
#ifndef MAMBA2_CHUNK_H
#define MAMBA2_CHUNK_H
#include "control.h"
#include "interface.h"
#define MAMBA2_CHUNK_RECORD(N, P) ((N) * (((P) + 3) / 4) + 1) // vec4 of a record
#endif
