// prune_case.h: random activations and fixtures for the tests of the pruning methods.
#ifndef PRUNE_CASE_H
#define PRUNE_CASE_H
#include "checkpoint.h"
#include "method.h"
#include "pca.h"
#include "rank.h"
#include "rrqr.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Last: its macro fail() must not meet the declaration of ours.
#include <cmocka.h>

#define ASSERT_OK(call)                                                                                                \
  do {                                                                                                                 \
    if (call) fail_msg("%s: %s", #call, deltaic_last_error());                                                         \
  } while (0)
// a and b agree to `tolerance` of `scale`.
#define ASSERT_NEAR(a, b, scale, tolerance)                                                                            \
  do {                                                                                                                 \
    double a_ = (a), b_ = (b), scale_ = (scale);                                                                       \
    if (!(fabs(a_ - b_) <= (tolerance)*scale_)) fail_msg("%s = %.17g, %s = %.17g, scale %g", #a, a_, #b, b_, scale_);  \
  } while (0)

static inline deltaic_status measures_of(const double *a, int m, int n, struct rank_measures *out) {
  return rank_of_matrix(a, m, n, 1e-12, NULL, out);
}

static inline double uniform(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return ((double)(*seed >> 11) + 0.5) * 0x1p-53;
}
static inline double normal(uint64_t *seed) {
  return sqrt(-2 * log(uniform(seed))) * cos(6.283185307179586 * uniform(seed));
}
static inline int below(uint64_t *seed, int n) { return (int)(uniform(seed) * n); }

enum kind { INDEPENDENT, CORRELATED, SILU, SCALED, KINDS };

// (rows, d) activations; to be freed.
static inline float *random_rows(uint64_t *seed, int rows, int d, enum kind kind) {
  float *x = malloc(sizeof *x * (size_t)rows * (size_t)d);
  double *mix = malloc(sizeof *mix * (size_t)d * (size_t)d), *z = malloc(sizeof *z * (size_t)d);
  for (int i = 0; i < d * d; i++) mix[i] = normal(seed) / sqrt(d);
  for (int t = 0; t < rows; t++) {
    for (int j = 0; j < d; j++) z[j] = normal(seed);
    for (int j = 0; j < d; j++) {
      double y = 0;
      for (int i = 0; i < d; i++) y += z[i] * mix[i + j * d];
      if (kind == INDEPENDENT) y = z[j];
      if (kind == SCALED) y = z[j] * exp(3 * sin(j));
      if (kind == SILU) y = y / (1 + exp(-y));
      x[(size_t)t * d + j] = (float)y;
    }
  }
  free(mix);
  free(z);
  return x;
}

// One head with all of its measurements, taken from rows of queries and of keys.
struct measured {
  struct prune_head head;
  float *q, *k;
  double *gram; // (4) of (d, d): q, k, both normalized
  double *sum;  // (4) of (d)
};

static inline float *normalized(const float *x, int rows, int d) {
  float *y = malloc(sizeof *y * (size_t)rows * (size_t)d);
  for (int t = 0; t < rows; t++) {
    double norm = 0;
    for (int j = 0; j < d; j++) norm += (double)x[(size_t)t * d + j] * x[(size_t)t * d + j];
    for (int j = 0; j < d; j++) y[(size_t)t * d + j] = (float)(x[(size_t)t * d + j] / sqrt(norm > 0 ? norm : 1));
  }
  return y;
}

// Takes q and k (rows, d) over.
static inline struct measured measure_head(float *q, float *k, int rows, int d) {
  struct measured m = {.q = q, .k = k};
  float *unit[2] = {normalized(q, rows, d), normalized(k, rows, d)};
  const float *x[4] = {q, k, unit[0], unit[1]};
  size_t size = (size_t)d * (size_t)d;
  ASSERT_OK(matrix_create(4, (int64_t)size, "grams", &m.gram));
  ASSERT_OK(matrix_create(4, d, "sums", &m.sum));
  struct prune_moments *moments[4] = {&m.head.q, &m.head.k, &m.head.q_unit, &m.head.k_unit};
  for (int i = 0; i < 4; i++) {
    ASSERT_OK(
        matrix_add_gram((struct matrix_rows){x[i], rows, d}, d, m.gram + (size_t)i * size, m.sum + (size_t)i * d));
    *moments[i] = (struct prune_moments){rows, m.gram + (size_t)i * size, m.sum + (size_t)i * d};
  }
  m.head.d = d;
  m.head.q_rows = (struct matrix_rows){q, rows, d};
  m.head.k_rows = (struct matrix_rows){k, rows, d};
  free(unit[0]);
  free(unit[1]);
  return m;
}

static inline struct measured random_head(uint64_t *seed, int rows, int d, enum kind kind) {
  float *q = random_rows(seed, rows, d, kind), *k = random_rows(seed, rows, d, kind);
  return measure_head(q, k, rows, d);
}

static inline void measured_free(struct measured *m) {
  free(m->q);
  free(m->k);
  free(m->gram);
  free(m->sum);
}

static inline struct prune_result select_with(const char *method, const struct prune_head *head, int keep,
                                              struct prune_options options) {
  struct prune_result result;
  ASSERT_OK(prune_select(prune_method_find(method), head, keep, &options, &result));
  return result;
}

static inline void assert_same(const int *a, const int *b, int n) {
  for (int i = 0; i < n; i++)
    if (a[i] != b[i]) fail_msg("entry %d of %d: %d, expected %d", i, n, a[i], b[i]);
}

static inline bool contains(const int *list, int n, int value) {
  for (int i = 0; i < n; i++)
    if (list[i] == value) return true;
  return false;
}
#endif
