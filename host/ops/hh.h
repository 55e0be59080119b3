// hh.h: computes the masks of Head-in-Head ("Head-in-Head in Linear Attention"; docs/mixers.md).
#ifndef HH_H
#define HH_H
#include "status.h"
#include <stdint.h>

enum { HH_MOST = 16 }; // most blocks in a head

// The function f that makes logits non-negative. GIVEN: the input is already the mask M.
enum hh_nonneg { HH_NONNEG_GIVEN, HH_NONNEG_SOFTPLUS, HH_NONNEG_SIGMOID, HH_NONNEG_EXP };

// M = N N^T, where N has the rows of f(z), each divided by its L2 norm (1e-6 is added to the sum of squares). M and z
// are (r, r), r <= HH_MOST.
void hh_mask(float *M, const float *z, uint32_t r, enum hh_nonneg nonneg) INSIDE(hh_mask);
// dz (r, r), the gradient of z, from dM, the gradient of M.
void hh_mask_back(float *dz, const float *dM, const float *z, uint32_t r, enum hh_nonneg nonneg) INSIDE(hh_mask_back);
#endif
