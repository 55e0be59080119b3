// experts_case.h: a product of experts' rows against float64, as the list's settings say.
#ifndef EXPERTS_CASE_H
#define EXPERTS_CASE_H
#include "ops_tools.h"

struct experts_shape {
  uint32_t T, k, E, N, K;
  bool each; // a row of x for each choice
  bool gated;
};

// (T, k) experts, any of E.
struct array experts_ids(uint32_t T, uint32_t k, uint32_t E);
// The product, after group and perhaps before a glu.
void experts_check(enum dtype dtype, const struct experts_shape *z, double limit);
// T tokens and weights of which one descriptor of a Vulkan device binds two experts of five, of f32 one.
void experts_check_parts(enum dtype dtype, uint32_t T, double limit);
#endif
