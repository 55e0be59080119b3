// hh_mask.glsl: computes the masks of Head-in-Head, M = N N^T. N has the rows of f(z), each divided by its L2 norm;
// z (R, R) logits, f = softplus, sigmoid or exp; 1e-6 is added to a row's sum of squares. Needs R, NONNEG
// and the buffer `mask`.
#include "activation.glsl"

float nonneg(float z) {
  return NONNEG == HH_SOFTPLUS ? softplus(z) : NONNEG == HH_SIGMOID ? sigmoid(z) : accurate_exp(z);
}

// Computes a row of N from the row of z at `from`. e^z is divided by e^top, where top is the row's maximum
// or 0 if that is larger, so that the sum of squares cannot overflow; the row's norm removes the factor.
void mask_row(uint from, out float N[R]) {
  float top = 0.0, squares = 0.0;
  if (NONNEG == HH_EXP) {
    [[unroll]] for (uint b = 0; b < R; b++) top = max(top, mask[from + b]);
  }
  [[unroll]] for (uint b = 0; b < R; b++) {
    N[b] = nonneg(mask[from + b] - top);
    squares += N[b] * N[b];
  }
  float factor = accurate_inversesqrt(squares + 1e-6 * accurate_exp(-2.0 * top));
  [[unroll]] for (uint b = 0; b < R; b++) N[b] *= factor;
}
