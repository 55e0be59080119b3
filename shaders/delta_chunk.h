// delta_chunk.h: how both kernels of the chunkwise delta rule number chunks, and what passes between them.
//
// Sequence s has ceil(T_s / C) chunks; chunks of all sequences are numbered one after the other. For chunk c and value
// head j, record c * Hv + j of `prepared` holds, f32, rows of C numbers:
//   Tm (C, C)  (I + A)^-1 diag(beta), lower triangular, A = strictly_lower(diag(beta) K K^T * D)
//   P (C, C)   lower(scale Q K^T * D)
//   fade_in (C)   e^G_i: what is left of the state before the chunk
//   fade_out (C)  e^(G_C - G_i): what is left of token i after the chunk
// G_i is the sum of g up to and including token i, D_ij = e^(G_i - G_j). Rows past the end of a sequence are those of
// tokens with k = q = 0, beta = g = 0.
#ifndef DELTA_CHUNK_H
#define DELTA_CHUNK_H
#include "control.h"
#include "interface.h"
#define DELTA_CHUNK_RECORD(C) ((2 * (C) + 2) * (C)) // numbers of a record
#endif
