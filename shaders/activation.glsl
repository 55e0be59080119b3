// activation.glsl: the nonlinear functions, safe for both signs and for arguments of any size.
#include "activation.h"

// 1 / (1 + e^-z) without overflow: e^-|z| <= 1.
float sigmoid(float z) {
  float e = exp(-abs(z));
  return (z >= 0.0 ? 1.0 : e) / (1.0 + e);
}

float silu(float z) { return z * sigmoid(z); }

// ln(1 + e^z). With w = 1 + e rounded, ln(w) e / (w - 1) keeps the digits that rounding took from e (Kahan's log1p);
// where e vanishes beside 1 the answer is e itself.
float softplus(float z) {
  if (z > 20.0) return z;
  float e = exp(z);
  float w = 1.0 + e;
  return e < 1e-6 ? e : log(w) * (e / (w - 1.0));
}

// POWLU: z^(3 / (sqrt z + 1)) sigmoid(z) for z > 0, else SiLU.
float activate(uint activation, float z) {
  switch (activation) {
  case ACT_SILU: return silu(z);
  case ACT_RELU: return max(z, 0.0);
  case ACT_ELU1: return z > 0.0 ? z + 1.0 : exp(z);
  case ACT_POWLU: return z > 0.0 ? pow(z, 3.0 / (sqrt(z) + 1.0)) * sigmoid(z) : silu(z);
  default: return z;
  }
}
