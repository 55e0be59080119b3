// rank_api: rank measures for callers of the public header.
#include "rank.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

deltaic_status deltaic_matrix_rank(const float *a, size_t rows, size_t cols, double zero, deltaic_rank *rank,
                                   double *values) {
  if (!a || !rank || !rows || !cols || rows > INT_MAX || cols > INT_MAX)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_matrix_rank: a, its sizes and rank are required");
  int m = (int)cols, n = (int)rows, count = m < n ? m : n; // rows after rows are columns after columns of the transpose
  double *copy = NULL, *s = NULL;
  struct rank_measures found = {0};
  deltaic_status status = matrix_create(m, n, "a matrix", &copy);
  if (!status) status = matrix_create(count, 1, "singular values", &s);
  for (size_t i = 0; !status && i < rows * cols; i++) copy[i] = a[i];
  if (!status && !matrix_finite(copy, (int64_t)m * n))
    status = fail(DELTAIC_INVALID_ARGUMENT, "a matrix holds a value that is not finite");
  if (!status) status = matrix_singular_values(copy, m, n, s);
  if (!status) rank_of_values(s, count, n, zero, &found);
  if (!status && values) memcpy(values, s, sizeof *s * (size_t)count);
  if (!status)
    *rank = (deltaic_rank){.stable_rank = found.stable_rank,
                           .utilization = found.utilization,
                           .entropy_rank = found.entropy_rank,
                           .condition = found.condition,
                           .rank = found.rank};
  free(copy);
  free(s);
  return status;
}
