// hh.h: masks of Head-in-Head ("Head-in-Head in Linear Attention"; docs/mixers.md).
#ifndef HH_H
#define HH_H
#include <stdint.h>

enum { HH_MOST = 16 }; // blocks of a head

// f of the logits: what makes them non-negative. GIVEN: the numbers are M already.
enum hh_nonneg { HH_NONNEG_GIVEN, HH_NONNEG_SOFTPLUS, HH_NONNEG_SIGMOID, HH_NONNEG_EXP };

// M = N N^T, N = rows of f(z) over their L2 norm (1e-6 added to the sum of squares); M, z (r, r), r <= HH_MOST.
void hh_mask(float *M, const float *z, uint32_t r, enum hh_nonneg nonneg);
#endif
