// delta_matrix.h: the records that the kernels of the chunkwise delta rule on cooperative matrices pass on.
//
// Steps, tokens and chunks have the order of delta_chunk.h, and records are similar, but in f16. For chunk c and value
// head j, record c * Hv + j of `prepared` holds, in units of 16 bytes:
//   Tm^T (C, C) f16      Tm = (I + A)^-1 diag(beta), lower triangular
//   P (QUERIES, C) f16   row t: scale q_t K^T * D up to the last step of token t, then zeros
//   fade_in (C) f32      e^G_i
//   fade_out (C) f32     e^(G_last - G_i)
//   fade_query (QUERIES) f32   scale e^G of the token
// QUERIES: the tokens of a chunk, C / N, rounded up to a multiple of 16 with empty ones.
//
// A long sequence with few heads is cut into segments, which scan computes at the same time. The first starts from the
// sequence's state. The others start from zero and, in more columns, from the identity. So scan finds how a segment
// maps any state S before it, M S + N, and what S adds to a token's output, reach_t S. delta_matrix_join carries the
// states from segment to segment; delta_matrix_reach adds to the outputs. For segment s of sequence z and value head j,
// block (z * segments + s) * Hv + j of `maps` holds:
//   N (DK, DVP)              f32; in the first segment, the state after it. In the others, join replaces it by S in
//   f16:
//                            for each tile of columns, in the first half of the bytes of its N
//   M (2, DK / 16, DK, 16)   f16: blocks of 16 columns, then the rounding errors of these values in f16
// reach (T, Hv, DK) is f16, with qkv's rows. DK, DVP: Dk and Dv rounded up, to a multiple of 16 and of the columns of a
// workgroup of scan.
#ifndef DELTA_MATRIX_H
#define DELTA_MATRIX_H
#include "control.h"
#include "interface.h"
#define DELTA_MATRIX_QUERIES(C, N) (((C) / (N) + 15) / 16 * 16)
#define DELTA_MATRIX_P(C) ((C) * (C) / 8) // where P begins; Tm is at 0
#define DELTA_MATRIX_FADES(C, N) (((C) + DELTA_MATRIX_QUERIES(C, N)) * (C) / 8)
#define DELTA_MATRIX_RECORD(C, N) (DELTA_MATRIX_FADES(C, N) + (2 * (C) + DELTA_MATRIX_QUERIES(C, N)) / 4)
#define DELTA_MATRIX_MAP(DK, DVP) ((DK) * ((DVP) + (DK))) // f32 elements of a block
#endif
