// rank: computes the rank measures of rank.h and the number of channels to keep.
#include "rank.h"

#include "rrqr.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ZERO_OF_GRAM 1e-6

void rank_of_values(const double *s, int count, int n, double zero, struct rank_measures *out) {
  double sum = 0, squares = 0, entropy = 0;
  *out = (struct rank_measures){.log_volume = -INFINITY};
  for (int i = 0; i < count; i++) {
    sum += s[i];
    squares += s[i] * s[i];
  }
  if (sum == 0) return;
  for (int i = 0; i < count; i++) {
    double p = s[i] / sum;
    if (p > 0) entropy -= p * log(p);
    out->rank += s[i] > zero * s[0];
  }
  out->stable_rank = squares / (s[0] * s[0]);
  out->utilization = out->stable_rank / count;
  out->entropy_rank = exp(entropy);
  out->condition = s[0] / s[out->rank - 1];
  if (out->rank < n) return;
  out->log_volume = 0;
  for (int i = 0; i < count; i++) out->log_volume += log(s[i]);
}

deltaic_status rank_of_matrix(const double *a, int m, int n, double zero, double *values, struct rank_measures *out) {
  int count = m < n ? m : n;
  double *copy = NULL, *s = NULL;
  *out = (struct rank_measures){.log_volume = -INFINITY};
  if (!matrix_finite(a, (int64_t)m * n))
    return fail(DELTAIC_INVALID_ARGUMENT, "a matrix holds a value that is not finite");
  deltaic_status status = matrix_create(m, n, "a matrix", &copy);
  if (!status) status = matrix_create(count, 1, "singular values", &s);
  if (!status) memcpy(copy, a, sizeof *a * (size_t)m * (size_t)n);
  if (!status) status = matrix_singular_values(copy, m, n, s);
  if (!status) rank_of_values(s, count, n, zero, out);
  if (!status && values) memcpy(values, s, sizeof *s * (size_t)count);
  free(copy);
  free(s);
  return status;
}

// gram is overwritten.
static deltaic_status measure_gram(double *gram, int n, int64_t rows, struct rank_measures *out) {
  double *s;
  int count = rows < n ? (int)rows : n;
  *out = (struct rank_measures){.log_volume = -INFINITY};
  if (!matrix_finite(gram, (int64_t)n * n))
    return fail(DELTAIC_INVALID_ARGUMENT, "a Gram matrix holds a value that is not finite");
  deltaic_status status = matrix_create(n, 1, "eigenvalues", &s);
  if (!status) status = matrix_eigen(gram, n, false, s);
  if (!status) {
    for (int i = 0; i < n / 2; i++) {
      double smaller = s[i];
      s[i] = s[n - 1 - i];
      s[n - 1 - i] = smaller;
    }
    for (int i = 0; i < n; i++) s[i] = s[i] > 0 ? sqrt(s[i]) : 0;
    rank_of_values(s, count, n, ZERO_OF_GRAM, out);
  }
  free(s);
  return status;
}

deltaic_status rank_of_gram(const double *gram, int n, int64_t rows, struct rank_measures *out) {
  double *copy;
  deltaic_status status = matrix_create(n, n, "a Gram matrix", &copy);
  if (status) return status;
  memcpy(copy, gram, sizeof *gram * (size_t)n * (size_t)n);
  status = measure_gram(copy, n, rows, out);
  free(copy);
  return status;
}

deltaic_status rank_of_kept(const double *gram, int d, const int *kept, int keep, int64_t rows,
                            struct rank_measures *out) {
  double *part;
  deltaic_status status = matrix_create(keep, keep, "a Gram matrix", &part);
  if (status) return status;
  matrix_principal(gram, d, kept, keep, part);
  status = measure_gram(part, keep, rows, out);
  free(part);
  return status;
}

// ---------------------------------------------------------------- number of channels to keep

deltaic_status rank_keep_by_rank(const double *gram, int d, enum rank_kind kind, int *keep) {
  struct rank_measures m;
  deltaic_status status = rank_of_gram(gram, d, d, &m);
  if (status) return status;
  double rank = kind == RANK_ENTROPY ? m.entropy_rank : kind == RANK_STABLE ? m.stable_rank : m.rank;
  int n = (int)ceil(rank - 1e-9); // a rank of 4 may be computed as 4.0000000001
  *keep = n < 1 ? 1 : n > d ? d : n;
  return DELTAIC_OK;
}

deltaic_status rank_keep_by_volume(const double *gram, int d, double limit, int *keep) {
  struct rrqr s;
  double all = 0, outside = 0;
  if (!(limit >= 0 && limit < 1))
    return fail(DELTAIC_INVALID_ARGUMENT, "a share of %g of the volume to lose (0 or more, below 1)", limit);
  deltaic_status status = rrqr_from_gram(&s, gram, d, d, 1);
  // If n channels are kept, |C|_F^2 is the sum of the squares of rows n, n + 1, ... of R.
  int n = status ? 0 : s.rank;
  for (int j = 0; j < d; j++) all += gram[j + (size_t)j * d];
  while (n > 1) {
    for (int j = n - 1; j < d; j++) outside += s.r[n - 1 + (size_t)j * d] * s.r[n - 1 + (size_t)j * d];
    if (outside > limit * limit * all) break;
    n--;
  }
  *keep = n < 1 ? 1 : n;
  rrqr_free(&s);
  return status;
}
