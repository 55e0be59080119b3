// hh_chunk.h: how both kernels of the chunkwise Head-in-Head rule number chunks, and what passes between them.
//
// Sequence s has ceil(T_s / C) chunks; chunks of all sequences are numbered one after the other. Unknowns are numbered
// by token, then block: n * R + a. For chunk c and value head j, record c * Hv + j of `prepared` holds, f32:
//   Tm (C R, C R)    (I + A)^-1 diag(beta), lower triangular
//   P (C, C R)       scale (q^n_b . k^i_b) e^(G_n - G_i) for i <= n, else 0
//   masks (C, R, R)  e^G_n M^n: what a token's unknowns lose to the state before the chunk
//   fade_in (C)      e^G_n: what is left of that state
//   fade_out (C)     e^(G_C - G_n): what is left of token n after the chunk
// G_n is the sum of g up to and including token n. Rows past the end of a sequence are those of tokens with
// k = q = 0, beta = g = 0.
#ifndef HH_CHUNK_H
#define HH_CHUNK_H
#include "control.h"
#include "hh_mask.h"
#include "interface.h"
#define HH_CHUNK_P(C, R) ((C) * (R) * (C) * (R)) // where each begins, and the numbers of a record
#define HH_CHUNK_MASKS(C, R) (HH_CHUNK_P(C, R) + (C) * (C) * (R))
#define HH_CHUNK_FADE(C, R) (HH_CHUNK_MASKS(C, R) + (C) * (R) * (R))
#define HH_CHUNK_RECORD(C, R) (HH_CHUNK_FADE(C, R) + 2 * (C))
#endif
