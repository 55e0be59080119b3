// slope.glsl: slopes of the activations.
#include "activation.glsl"

float silu_slope(float z) {
  float s = sigmoid(z);
  return s * (1.0 + z * (1.0 - s));
}

// POWLU: z^p sigmoid(z) with p = 3 / (sqrt z + 1).
float powlu_slope(float z) {
  if (!(z > 0.0)) return silu_slope(z);
  float s = sigmoid(z), root = sqrt(z), l = accurate_log(z);
  return accurate_exp(3.0 / (root + 1.0) * l) * s *
         (3.0 / ((root + 1.0) * z) - 1.5 * l / (root * (root + 1.0) * (root + 1.0)) + 1.0 - s);
}

float slope(uint activation, float z) {
  switch (activation) {
  case ACT_SILU: return silu_slope(z);
  case ACT_RELU: return z > 0.0 ? 1.0 : 0.0;
  case ACT_ELU1: return z > 0.0 ? 1.0 : accurate_exp(z);
  case ACT_POWLU: return powlu_slope(z);
  case ACT_SIGMOID: return sigmoid(z) * (1.0 - sigmoid(z));
  default: return 1.0;
  }
}
