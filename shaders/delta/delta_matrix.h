// delta_matrix.h: what passes between the kernels of the chunkwise delta rule on cooperative matrices.
//
// Steps, tokens and chunks are numbered as in delta_chunk.h, of which this is the twin with matrices of f16. For chunk
// c and value head j, record c * Hv + j of `prepared` holds, in units of 16 bytes:
//   Tm^T (C, C) f16      Tm = (I + A)^-1 diag(beta), lower triangular
//   P (QUERIES, C) f16   row t: scale q_t K^T * D up to the last step of token t, then zeros
//   fade_in (C) f32      e^G_i
//   fade_out (C) f32     e^(G_last - G_i)
//   fade_query (QUERIES) f32   scale e^G of the token
// QUERIES: the tokens of a chunk, C / N, and empty ones up to a multiple of 16.
//
// A long sequence of few heads is cut into segments, which scan walks at the same time: the first from the sequence's
// state, the others from nothing and, as further columns, from the identity. So it knows what a segment makes of any
// state S before it, M S + N, and what S adds to a token's output, reach_t S. delta_matrix_join follows the states from
// segment to segment, delta_matrix_reach adds to the outputs. `maps` holds of segment s of sequence z and value head j,
// as block (z * segments + s) * Hv + j:
//   N (DK, DVP)              f32; of the first segment the state after it. Of the others, S takes its place, in f16:
//                            as many columns as a tile has in the first half of their N's bytes
//   M (2, DK / 16, DK, 16)   f16, 16 columns of it after 16, and what rounding to f16 took from it
// and reach (T, Hv, DK) is f16, with qkv's rows. DK, DVP: Dk and Dv rounded up, to a multiple of 16 and of the columns
// of a workgroup of scan.
#ifndef DELTA_MATRIX_H
#define DELTA_MATRIX_H
#include "control.h"
#include "interface.h"
#define DELTA_MATRIX_QUERIES(C, N) (((C) / (N) + 15) / 16 * 16)
#define DELTA_MATRIX_P(C) ((C) * (C) / 8) // where P begins; Tm is at 0
#define DELTA_MATRIX_FADES(C, N) (((C) + DELTA_MATRIX_QUERIES(C, N)) * (C) / 8)
#define DELTA_MATRIX_RECORD(C, N) (DELTA_MATRIX_FADES(C, N) + (2 * (C) + DELTA_MATRIX_QUERIES(C, N)) / 4)
#define DELTA_MATRIX_MAP(DK, DVP) ((DK) * ((DVP) + (DK))) // numbers of f32 in a block
#endif
