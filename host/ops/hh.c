// hh: masks of Head-in-Head on the host: fixed masks when a model is loaded, and every token's mask on the CPU.
#include "hh.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static float nonnegative(float z, enum hh_nonneg nonneg) {
  switch (nonneg) {
  case HH_NONNEG_GIVEN: return z;
  case HH_NONNEG_SOFTPLUS: return z > 20 ? z : log1pf(expf(z));
  case HH_NONNEG_SIGMOID: return 1 / (1 + expf(-z));
  case HH_NONNEG_EXP: return expf(z);
  }
  return z;
}

// Computes a row of N. e^z is divided by e^top, where top is the row's maximum or 0 if that is larger, so that the sum
// of squares cannot overflow; the row's norm removes the factor.
static void mask_row(float *N, const float *z, uint32_t r, enum hh_nonneg nonneg) {
  float top = 0, squares = 0;
  for (uint32_t b = 0; b < r && nonneg == HH_NONNEG_EXP; b++) top = fmaxf(top, z[b]);
  for (uint32_t b = 0; b < r; b++) {
    N[b] = nonnegative(z[b] - top, nonneg);
    squares += N[b] * N[b];
  }
  float norm = sqrtf(squares + 1e-6f * expf(-2 * top));
  for (uint32_t b = 0; b < r; b++) N[b] /= norm;
}

void hh_mask(float *M, const float *z, uint32_t r, enum hh_nonneg nonneg) {
  float N[HH_MOST * HH_MOST];
  assert(r <= HH_MOST);
  if (nonneg == HH_NONNEG_GIVEN) {
    memcpy(M, z, (uint64_t)r * r * sizeof *M);
    return;
  }
  for (uint32_t a = 0; a < r; a++) mask_row(N + a * r, z + a * r, r, nonneg);
  for (uint32_t a = 0; a < r; a++)
    for (uint32_t b = 0; b < r; b++) {
      M[a * r + b] = 0;
      for (uint32_t c = 0; c < r; c++) M[a * r + b] += N[a * r + c] * N[b * r + c];
    }
}

// Slope of the function that makes logits non-negative.
static double slope(double z, enum hh_nonneg nonneg) {
  const double s = 1 / (1 + exp(-z));
  switch (nonneg) {
  case HH_NONNEG_GIVEN: return 1;
  case HH_NONNEG_SOFTPLUS: return s;
  case HH_NONNEG_SIGMOID: return s * (1 - s);
  case HH_NONNEG_EXP: return exp(z);
  }
  return 1;
}

// With f a row of f(z) and R = 1 / sqrt(sum f^2 + 1e-6):  N = R f,  df = R (dN - N sum dN N),  dz = df f'(z).
// EXP: e^z relative to the row's maximum, as in mask_row(); R then has the reverse factor.
void hh_mask_back(float *dz, const float *dM, const float *z, uint32_t r, enum hh_nonneg nonneg) {
  float N[HH_MOST * HH_MOST];
  assert(r <= HH_MOST);
  for (uint32_t a = 0; a < r && nonneg != HH_NONNEG_GIVEN; a++) mask_row(N + a * r, z + a * r, r, nonneg);
  for (uint32_t a = 0; a < r; a++) {
    if (nonneg == HH_NONNEG_GIVEN) {
      memcpy(dz + a * r, dM + a * r, r * sizeof *dz);
      continue;
    }
    double dN[HH_MOST], dot = 0, squares = 0, top = 0;
    for (uint32_t c = 0; c < r; c++) {
      dN[c] = 0;
      for (uint32_t b = 0; b < r; b++) dN[c] += ((double)dM[a * r + b] + dM[b * r + a]) * N[b * r + c];
      dot += dN[c] * N[a * r + c];
    }
    for (uint32_t c = 0; c < r && nonneg == HH_NONNEG_EXP; c++) top = fmax(top, z[a * r + c]);
    for (uint32_t c = 0; c < r; c++) {
      const double f = nonnegative(z[a * r + c] - (float)top, nonneg);
      squares += f * f;
    }
    const double R = 1 / sqrt(squares + 1e-6 * exp(-2 * top));
    for (uint32_t c = 0; c < r; c++)
      dz[a * r + c] = (float)(R * (dN[c] - N[a * r + c] * dot) * slope(z[a * r + c] - top, nonneg));
  }
}
