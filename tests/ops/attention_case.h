// attention_case.h: softmax attention over random caches of three slots, against float64.
#ifndef ATTENTION_CASE_H
#define ATTENTION_CASE_H
#include "ops_tools.h"

// Runs sequences s with queries of standard deviation `scale`, o in this dtype with o_stride (or DENSE), and expects
// what float64 gives, named `what`.
void attention_check(const char *what, struct attention_args a, const struct sequence *s, uint32_t B, double scale,
                     enum dtype dtype, uint32_t o_stride, double limit);
#endif
