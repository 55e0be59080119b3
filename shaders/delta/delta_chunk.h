// delta_chunk.h: how both kernels of the chunkwise delta rule number chunks, and what passes between them.
//
// A token has N steps, each with a key, a value and a beta; N = 1 but for DeltaProduct. A chunk is TOKENS = C / N
// tokens: step m of its token t is row t * N + m of K and V, and rows from TOKENS * N on are empty. Sequence s has
// ceil(T_s / TOKENS) chunks; chunks of all sequences are numbered one after the other. For chunk c and value head j,
// record c * Hv + j of `prepared` holds, f32, rows of C numbers:
//   Tm (C, C)  (I + A)^-1 diag(beta), lower triangular, A = strictly_lower(diag(beta) K K^T * D)
//   P (C, C)   row t < TOKENS: scale q_t K^T * D up to the last step of token t, then zeros
//   fade_in (C)   e^G_i: what is left of the state before the chunk
//   fade_out (C)  e^(G_C - G_i): what is left of step i after the chunk
// G_i is the sum of g up to and including the token of step i, D_ij = e^(G_i - G_j). Rows past the end of a sequence
// are those of tokens with k = q = 0, beta = g = 0.
#ifndef DELTA_CHUNK_H
#define DELTA_CHUNK_H
#include "control.h"
#include "interface.h"
#define DELTA_CHUNK_RECORD(C) ((2 * (C) + 2) * (C)) // numbers of a record
#endif
