// delta_chunk.h: the order of chunks in the chunkwise delta rule, and the records that its two kernels pass on.
//
// A token has N householder steps, each with a key, a value and a beta; N > 1 is DeltaProduct. A chunk is TOKENS = C /
// N tokens: step m of its token t is row t * N + m of K and V, and rows from TOKENS * N on are empty. Sequence s has
// ceil(T_s / TOKENS) chunks; the chunks of all sequences are numbered consecutively. For chunk c and value head j,
// record c * Hv + j of `prepared` holds, in f32, in rows of C elements:
//   Tm (C, C)  (I + A)^-1 diag(beta), lower triangular, A = strictly_lower(diag(beta) K K^T * D)
//   P (C, C)   row t < TOKENS: scale q_t K^T * D up to the last step of token t, then zeros
//   fade_in (C)   e^G_i: the decay from the state before the chunk to step i
//   fade_out (C)  e^(G_C - G_i): the decay from step i to the end of the chunk
// G_i is the sum of g up to and including the token of step i, D_ij = e^(G_i - G_j). Rows past the end of a sequence
// belong to tokens with k = q = 0, beta = g = 0.
#ifndef DELTA_CHUNK_H
#define DELTA_CHUNK_H
#include "control.h"
#include "interface.h"
#define DELTA_CHUNK_RECORD(C) ((2 * (C) + 2) * (C)) // elements of a record
#endif
