// hh_chunk.h: the order of chunks in the chunkwise Head-in-Head rule, and the records that its two kernels pass on.
//
// Sequence s has ceil(T_s / C) chunks; the chunks of all sequences are numbered consecutively. Unknowns are ordered by
// token, then block: n * R + a. For chunk c and value head j, record c * Hv + j of `prepared` holds, in f32:
//   Tm (C R, C R)    (I + A)^-1 diag(beta), lower triangular
//   P (C, C R)       scale (q^n_b . k^i_b) e^(G_n - G_i) for i <= n, else 0
//   masks (C, R, R)  e^G_n M^n: the factor of the state before the chunk in a token's unknowns
//   fade_in (C)      e^G_n: the decay from that state to token n
//   fade_out (C)     e^(G_C - G_n): the decay from token n to the end of the chunk
// G_n is the sum of g up to and including token n. Rows past the end of a sequence belong to tokens with k = q = 0,
// beta = g = 0.
#ifndef HH_CHUNK_H
#define HH_CHUNK_H
#include "control.h"
#include "hh_mask.h"
#include "interface.h"
#define HH_CHUNK_P(C, R) ((C) * (R) * (C) * (R)) // where each begins, and the elements of a record
#define HH_CHUNK_MASKS(C, R) (HH_CHUNK_P(C, R) + (C) * (C) * (R))
#define HH_CHUNK_FADE(C, R) (HH_CHUNK_MASKS(C, R) + (C) * (R) * (R))
#define HH_CHUNK_RECORD(C, R) (HH_CHUNK_FADE(C, R) + 2 * (C))
#endif
