// activation.glsl: the nonlinear functions, safe for both signs and arguments of any size.
#include "accurate.glsl"
#include "activation.h"

// 1 / (1 + e^-z) without overflow: e^-|z| <= 1.
float sigmoid(float z) {
  float e = accurate_exp(-abs(z));
  return (z >= 0.0 ? 1.0 : e) / (1.0 + e);
}

float silu(float z) { return z * sigmoid(z); }

// ln(1 + e^z)
float softplus(float z) { return max(z, 0.0) + accurate_log1p(accurate_exp(-abs(z))); }

// POWLU: z^(3 / (sqrt z + 1)) sigmoid(z) for z > 0, else SiLU.
float activate(uint activation, float z) {
  switch (activation) {
  case ACT_SILU: return silu(z);
  case ACT_RELU: return max(z, 0.0);
  case ACT_ELU1: return z > 0.0 ? z + 1.0 : accurate_exp(z);
  case ACT_POWLU: return z > 0.0 ? accurate_exp(3.0 / (sqrt(z) + 1.0) * accurate_log(z)) * sigmoid(z) : silu(z);
  case ACT_SIGMOID: return sigmoid(z);
  default: return z;
  }
}
