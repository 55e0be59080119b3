// matrix: implements the dense linear algebra of matrix.h with LAPACK and BLAS.
#include "matrix.h"

#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// BLOCK rows are converted to double at a time (half a megabyte at 128 channels). LEADING is the stride of their
// columns; it is not a power of two, to avoid cache conflicts. PANEL is dtpqrt's block size.
enum { BLOCK = 512, LEADING = BLOCK + 8, PANEL = 32 };

void openblas_set_num_threads(int) __attribute__((weak)); // missing from other BLAS libraries

void matrix_use_one_thread(void) {
  if (openblas_set_num_threads) openblas_set_num_threads(1);
}

deltaic_status matrix_create(int64_t m, int64_t n, const char *what, double **out) {
  uint64_t count, bytes;
  *out = NULL;
  if (m < 0 || n < 0 || !size_mul((uint64_t)m, (uint64_t)n, &count) || !size_mul(count, sizeof **out, &bytes))
    return fail(DELTAIC_OUT_OF_MEMORY, "%s: %lld x %lld numbers do not fit", what, (long long)m, (long long)n);
  *out = calloc(count ? count : 1, sizeof **out);
  return *out ? DELTAIC_OK : fail_memory(what, bytes);
}

bool matrix_finite(const double *a, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (!isfinite(a[i])) return false;
  return true;
}

void matrix_principal(const double *a, int d, const int *index, int n, double *out) {
  for (int j = 0; j < n; j++)
    for (int i = 0; i < n; i++) out[i + (size_t)j * n] = a[index[i] + (size_t)index[j] * d];
}

static deltaic_status lapack(lapack_int info, const char *routine) {
  if (info == LAPACK_WORK_MEMORY_ERROR || info == LAPACK_TRANSPOSE_MEMORY_ERROR)
    return fail(DELTAIC_OUT_OF_MEMORY, "out of memory in %s", routine);
  if (info < 0) return fail(DELTAIC_INVALID_ARGUMENT, "%s: a value in the matrix is not finite", routine);
  return info ? fail(DELTAIC_INTERNAL, "%s did not converge (%d)", routine, (int)info) : DELTAIC_OK;
}

static int block_rows(struct matrix_rows x, int64_t first) {
  return x.rows - first < BLOCK ? (int)(x.rows - first) : BLOCK;
}

deltaic_status matrix_add_gram(struct matrix_rows x, int n, double *gram, double *sum) {
  double *block = NULL; // rows in their original order: column-major (n, count)
  deltaic_status status = matrix_create(n, BLOCK, "a block of activations", &block);
  for (int64_t first = 0; !status && first < x.rows; first += BLOCK) {
    int count = block_rows(x, first);
    for (int t = 0; t < count; t++)
      for (int j = 0; j < n; j++) block[j + (size_t)t * (size_t)n] = x.data[(first + t) * x.stride + j];
    if (!matrix_finite(block, (int64_t)count * n)) {
      status = fail(DELTAIC_INVALID_ARGUMENT, "an activation is not finite");
      break;
    }
    cblas_dsyrk(CblasColMajor, CblasUpper, CblasNoTrans, n, count, 1.0, block, n, 1.0, gram, n);
    for (int t = 0; sum && t < count; t++) cblas_daxpy(n, 1.0, block + (size_t)t * (size_t)n, 1, sum, 1);
  }
  for (int j = 0; j < n; j++)
    for (int i = 0; i < j; i++) gram[j + (size_t)i * (size_t)n] = gram[i + (size_t)j * (size_t)n];
  free(block);
  return status;
}

// Copies rows [first, first + count) to columns (LEADING, n), a few at a time because each store hits another line.
static void rows_to_columns(struct matrix_rows x, int64_t first, int count, int n, double *out) {
  enum { TOGETHER = 16 };
  for (int j = 0; j < n; j += TOGETHER)
    for (int t = 0; t < count; t++)
      for (int c = j; c < n && c < j + TOGETHER; c++) out[t + (size_t)c * LEADING] = x.data[(first + t) * x.stride + c];
}

deltaic_status matrix_rows_qr(const struct matrix_rows *parts, int count, int n, double *r) {
  int inner = n < PANEL ? n : PANEL;
  double *block = NULL, *reflectors = NULL;
  memset(r, 0, sizeof *r * (size_t)n * (size_t)n);
  deltaic_status status = matrix_create(LEADING, n, "a block of activations", &block);
  if (!status) status = matrix_create(inner, n, "a QR factorization", &reflectors);
  for (int p = 0; p < count; p++)
    for (int64_t t = 0; !status && t < parts[p].rows; t += BLOCK) {
      int m = block_rows(parts[p], t);
      rows_to_columns(parts[p], t, m, n, block);
      lapack_int info = LAPACKE_dtpqrt(LAPACK_COL_MAJOR, m, n, 0, inner, r, n, block, LEADING, reflectors, inner);
      status = lapack(info, "dtpqrt");
    }
  if (!status && !matrix_finite(r, (int64_t)n * n))
    status = fail(DELTAIC_INVALID_ARGUMENT, "an activation is not finite");
  free(block);
  free(reflectors);
  return status;
}

static void clear_below(int m, int n, double *a) {
  for (int j = 0; j < n; j++)
    for (int i = j + 1; i < m; i++) a[i + (size_t)j * m] = 0;
}

deltaic_status matrix_qr(int m, int n, double *a) {
  double *tau;
  deltaic_status status = matrix_create(n, 1, "a QR factorization", &tau);
  if (!status) status = lapack(LAPACKE_dgeqrf(LAPACK_COL_MAJOR, m, n, a, m, tau), "dgeqrf");
  if (!status) clear_below(m, n, a);
  free(tau);
  return status;
}

deltaic_status matrix_qr_pivoted(int m, int n, int fixed, double *a, int *order) {
  double *tau = NULL;
  lapack_int *pivot = malloc(sizeof *pivot * (size_t)(n ? n : 1));
  deltaic_status status = pivot ? DELTAIC_OK : fail_memory("column pivoting", sizeof *pivot * (size_t)n);
  if (!status) status = matrix_create(n, 1, "a QR factorization", &tau);
  for (int j = 0; !status && j < n; j++) pivot[j] = j < fixed;
  if (!status) status = lapack(LAPACKE_dgeqp3(LAPACK_COL_MAJOR, m, n, a, m, pivot, tau), "dgeqp3");
  for (int j = 0; !status && j < n; j++) order[j] = (int)pivot[j] - 1;
  if (!status) clear_below(m, n, a);
  free(pivot);
  free(tau);
  return status;
}

deltaic_status matrix_invert_upper(const double *r, int n, int k, double *out) {
  for (int j = 0; j < k; j++) memcpy(out + (size_t)j * k, r + (size_t)j * n, sizeof *r * (size_t)k);
  lapack_int info = LAPACKE_dtrtri(LAPACK_COL_MAJOR, 'U', 'N', k, out, k);
  return info > 0 ? fail(DELTAIC_INVALID_ARGUMENT, "the matrix is singular") : lapack(info, "dtrtri");
}

deltaic_status matrix_singular_values(double *a, int m, int n, double *values) {
  double none;
  if (m == 0 || n == 0) return DELTAIC_OK;
  return lapack(LAPACKE_dgesdd(LAPACK_COL_MAJOR, 'N', m, n, a, m, values, &none, 1, &none, 1), "dgesdd");
}

static void fix_sign(double *vector, int n) {
  int largest = (int)cblas_idamax(n, vector, 1);
  if (vector[largest] < 0) cblas_dscal(n, -1.0, vector, 1);
}

deltaic_status matrix_eigen(double *a, int n, bool vectors, double *values) {
  deltaic_status status = lapack(LAPACKE_dsyevd(LAPACK_COL_MAJOR, vectors ? 'V' : 'N', 'U', n, a, n, values), "dsyevd");
  for (int j = 0; !status && vectors && j < n; j++) fix_sign(a + (size_t)j * n, n);
  return status;
}
