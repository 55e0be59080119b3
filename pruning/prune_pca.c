// pca: projects keys and queries onto the leading eigenvectors of the second moments of the normalized rows:
//
//   Sigma = (1/N) sum k k^T,   Sigma t_i = lambda_i t_i,   (k, q) -> (T k, T q)
//
// The moments are not centred, because the recurrence uses the keys and not their deviations. The projection is not
// axis-aligned, so it commutes neither with SiLU nor with filters that differ between channels; the method is a
// baseline. The adversarial variant uses the trailing eigenvectors.
#include "method.h"
#include "pca.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

// Adds weight sum x x^T to sigma (d, d), and weight sum x to mean (d).
static deltaic_status add_moments(const struct prune_moments *m, int d, double weight, bool centred, double *sigma,
                                  double *mean) {
  if (centred && !m->sum) return fail(DELTAIC_INVALID_ARGUMENT, "pca like the reference needs the channels' sums");
  cblas_daxpy(d * d, weight, m->gram, 1, sigma, 1);
  if (centred) cblas_daxpy(d, weight, m->sum, 1, mean, 1);
  return DELTAIC_OK;
}

// The published code computes (S2 - N m m^T) / (N - 1) with m = S1 / N. For `both` it halves the sums S1 and S2 of keys
// and queries and doubles the keys' N, so it subtracts only half of the mean's term.
static deltaic_status covariance(const struct prune_head *h, const struct prune_options *o, double *sigma,
                                 double *mean) {
  bool q = o->side != PRUNE_KEYS, k = o->side != PRUNE_QUERIES, centred = o->like_reference;
  double weight = centred && q && k ? 0.5 : 1;
  double rows = centred && q && k ? 2.0 * (double)h->k_unit.rows
                                  : (q ? (double)h->q_unit.rows : 0) + (k ? (double)h->k_unit.rows : 0);
  deltaic_status status = DELTAIC_OK;
  if (q) status = add_moments(&h->q_unit, h->d, weight, centred, sigma, mean);
  if (!status && k) status = add_moments(&h->k_unit, h->d, weight, centred, sigma, mean);
  if (status) return status;
  if (centred && rows < 2) return fail(DELTAIC_INVALID_ARGUMENT, "a covariance needs two tokens or more");
  if (centred) cblas_dger(CblasColMajor, h->d, h->d, -1.0 / rows, mean, 1, mean, 1, sigma, h->d);
  cblas_dscal(h->d * h->d, 1 / (centred ? rows - 1 : rows), sigma, 1);
  if (!matrix_finite(sigma, (int64_t)h->d * h->d))
    return fail(DELTAIC_INVALID_ARGUMENT, "a second moment is not finite");
  return DELTAIC_OK;
}

// Solves block b of the channels: the best eigenvectors become its rows of T, and all its variances become scores.
static deltaic_status project_block(const double *sigma, int blocks, int b, bool adversarial,
                                    struct prune_result *out) {
  int d = out->d, size = d / blocks, keep = out->keep / blocks, offset = b * size;
  double *part = NULL, *values = NULL;
  deltaic_status status = matrix_create(size, size, "a second moment", &part);
  if (!status) status = matrix_create(size, 1, "eigenvalues", &values);
  for (int j = 0; !status && j < size; j++)
    memcpy(part + (size_t)j * size, sigma + offset + (size_t)(offset + j) * d, sizeof *part * (size_t)size);
  if (!status) status = matrix_eigen(part, size, true, values);
  for (int i = 0; !status && i < size; i++) {
    int from = adversarial ? i : size - 1 - i;
    out->scores[offset + i] = values[from] > 0 ? values[from] : 0;
    if (i < keep)
      memcpy(out->projection + (size_t)(b * keep + i) * d + offset, part + (size_t)from * size,
             sizeof *part * (size_t)size);
  }
  free(part);
  free(values);
  return status;
}

static deltaic_status select_pca(const struct prune_head *head, int keep, const struct prune_options *options,
                                 struct prune_result *out) {
  double *sigma = NULL, *mean = NULL;
  deltaic_status status = matrix_create(head->d, head->d, "a second moment", &sigma);
  if (!status) status = matrix_create(head->d, 1, "a mean", &mean);
  if (!status) status = matrix_create(head->d, keep, "a projection", &out->projection);
  if (!status) status = covariance(head, options, sigma, mean);
  for (int b = 0; !status && b < head->blocks; b++)
    status = project_block(sigma, head->blocks, b, options->adversarial, out);
  free(sigma);
  free(mean);
  return status;
}

const struct prune_method prune_pca = {
    .name = "pca",
    .about = "projection on the directions of largest variance; fails on ordinary convolutions, to compare with",
    .needs = PRUNE_NEEDS_UNIT_MOMENTS,
    .select = select_pca,
};

// ---------------------------------------------------------------- weights

bool pca_filters_shared(const float *filters, int d, int width) {
  for (int j = 1; j < d; j++)
    if (memcmp(filters, filters + (size_t)j * width, sizeof *filters * (size_t)width)) return false;
  return true;
}

// out (keep, cols) = T W, or (T * T) W if `square`.
static void multiply(const double *projection, int keep, int d, const float *w, int cols, bool square, float *out) {
  for (int i = 0; i < keep; i++)
    for (int c = 0; c < cols; c++) {
      double sum = 0;
      for (int j = 0; j < d; j++) {
        double t = projection[(size_t)i * d + j];
        sum += (square ? t * t : t) * w[(size_t)j * cols + c];
      }
      out[(size_t)i * cols + c] = (float)sum;
    }
}

void pca_filters(const double *projection, int keep, int d, const float *filters, int width, float *out) {
  if (!pca_filters_shared(filters, d, width)) {
    multiply(projection, keep, d, filters, width, true, out);
    return;
  }
  for (int i = 0; i < keep; i++) memcpy(out + (size_t)i * width, filters, sizeof *out * (size_t)width);
}

void pca_rows(const double *projection, int keep, int d, const float *rows, int cols, float *out) {
  multiply(projection, keep, d, rows, cols, false, out);
}
