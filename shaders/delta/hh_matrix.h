// hh_matrix.h: the records that the kernels of the chunkwise Head-in-Head rule on cooperative matrices pass on.
//
// Sequence s has ceil(T_s / TOKENS) chunks; the chunks of all sequences are numbered consecutively. Unknowns ("steps") are ordered block by
// block: b * TOKENS + n, with TOKENS = C / R; from R * TOKENS to C they are empty. For chunk c and value head j, record
// c * Hv + j of `prepared` holds, in units of 16 bytes:
//   W (C + QUERIES, C) f16    a row gives what one element adds to all unknowns: V' = W^T (K_b S_b of each block; V)
//     row (b, i)   (I + A)^-1 w, w_(i,a) = -beta_i e^G_i M^i_ab, else 0
//     row C + i    the same, w_(i,a) = beta_i
//   P (QUERIES, C) f16         scale (q^n_b . k^i_b) e^(G_n - G_i) for i <= n, else 0
//   fade_in (C) f32            e^G_last, for the state
//   fade_out (C) f32           e^(G_last - G_i)
//   fade_query (QUERIES) f32   scale e^G of the token
// QUERIES: TOKENS rounded up to a multiple of 16.
#ifndef HH_MATRIX_H
#define HH_MATRIX_H
#include "delta_matrix.h"
#include "hh_mask.h"
#define HH_MATRIX_P(C, R) (((C) + DELTA_MATRIX_QUERIES(C, R)) * (C) / 8)
#define HH_MATRIX_FADES(C, R) (((C) + 2 * DELTA_MATRIX_QUERIES(C, R)) * (C) / 8)
#define HH_MATRIX_RECORD(C, R) (HH_MATRIX_FADES(C, R) + (2 * (C) + DELTA_MATRIX_QUERIES(C, R)) / 4)
// Rows of K's blocks in shared memory, with zeros around each; 0 if every tile of K lies in one block anyway.
#define HH_MATRIX_ALONE(C, R, D) (((C) / (R) % 16 + (D) % 16) == 0 ? 0 : (C))
#endif
