// rank_api: implements the rank measures of the public header.
#include "rank.h"

#include "deltaic_prune.h"

#include <limits.h>
#include <stdlib.h>

deltaic_status deltaic_matrix_rank(const float *a, size_t rows, size_t cols, double zero, deltaic_rank *rank,
                                   double *values) {
  if (!a || !rank) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_matrix_rank: %s is NULL", !a ? "a" : "rank");
  if (!rows || !cols || rows > INT_MAX || cols > INT_MAX)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_matrix_rank: %s is %zu", !rows || rows > INT_MAX ? "rows" : "cols",
                !rows || rows > INT_MAX ? rows : cols);
  int m = (int)cols, n = (int)rows; // a row-major matrix is its column-major transpose
  double *wide;
  struct rank_measures found;
  deltaic_status status = matrix_create(m, n, "a matrix", &wide);
  if (status) return status;
  for (size_t i = 0; i < rows * cols; i++) wide[i] = a[i];
  status = rank_of_matrix(wide, m, n, zero, values, &found);
  if (!status)
    *rank = (deltaic_rank){.stable_rank = found.stable_rank,
                           .utilization = found.utilization,
                           .entropy_rank = found.entropy_rank,
                           .condition = found.condition,
                           .rank = found.rank};
  free(wide);
  return status;
}
