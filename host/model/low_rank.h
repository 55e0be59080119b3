// low_rank.h: what adapters add to a matrix of several parts: y = x W^T + (x A^T) B^T (op_linear()). A (R, cols) has
// the rows of the parts' own A, below each other; parts of one tensor share them. B (rows, R) has in each part's rows
// its s B, in the columns of its A, and zeros elsewhere.
#ifndef LOW_RANK_H
#define LOW_RANK_H
#include "weights.h"

struct low_rank;

// Returns R. The caller frees *out, which is NULL if there is no memory.
uint64_t low_rank_create(const struct weight_part *parts, int count, struct low_rank **out);
struct low_factors *low_rank_factors(struct low_rank *low); // to be declared
// Rows of A and of B. context: the address of a pointer to the struct.
void low_rank_row_A(const void *context, uint32_t row, uint32_t cols, float *out);
void low_rank_row_B(const void *context, uint32_t row, uint32_t cols, float *out);
// Of the transpose of an embedding's A.
void low_rank_row_A_turned(const void *context, uint32_t row, uint32_t cols, float *out);
#endif
