// mamba2_case.h: random calls of Mamba-2, what they give in float64, and steps.
#ifndef MAMBA2_CASE_H
#define MAMBA2_CASE_H
#include "ops_tools.h"

enum { MAMBA2_PADDING = 2 };

struct mamba2_case {
  struct mamba2_args a;
  struct sequence s[3];
  uint32_t B, rows; // rows: the sequences', then MAMBA2_PADDING more
  struct array xBC, dt, g, D, state, y;
};

uint32_t mamba2_cols(struct mamba2_args a); // of xBC
// Normal x and state, B and C of unit size, dt log-uniform in (0.001, 1), g in -(0.001, 5). dtype: of y.
struct mamba2_case mamba2_random(enum dtype dtype, struct mamba2_args a, const uint32_t *T, uint32_t B);
void mamba2_rewind(struct mamba2_case *c); // both outputs back to what they were
// y and state after the case; both start as copies of what the case starts with.
void reference_mamba2(double *y, double *state, const struct mamba2_case *c);
// What y and state are now, against that; rows of no sequence and states of no slot keep their values.
void expect_mamba2(const char *const what[], const struct mamba2_case *c, double limit);
struct mamba2 mamba2_rule(const struct mamba2_case *c, const struct sequence *s, uint32_t B); // the operation
// A step, and a gate or none, against the operations that it is made of. y: what it rounds y to; high: of dt.
void check_mamba2_step(enum dtype y, const uint32_t *T, uint32_t B, bool gated, float high, double close);
// Of one row; the tensors of the norm say its width alone.
void reference_gated_norm(double *y, const double *z, const double *weight, const struct gated_norm *a);
#endif
