// slope.glsl: activations together with their slopes, which share the exponential.
#include "activation.glsl"

vec2 silu_and_slope(float z) {
  float s = sigmoid(z);
  return vec2(z * s, s * (1.0 + z * (1.0 - s)));
}

float silu_slope(float z) { return silu_and_slope(z).y; }

// POWLU: z^p sigmoid(z) with p = 3 / (sqrt z + 1).
vec2 powlu_and_slope(float z) {
  if (!(z > 0.0)) return silu_and_slope(z);
  float s = sigmoid(z), root = sqrt(z), l = accurate_log(z), y = accurate_exp(3.0 / (root + 1.0) * l) * s;
  return vec2(y, y * (3.0 / ((root + 1.0) * z) - 1.5 * l / (root * (root + 1.0) * (root + 1.0)) + 1.0 - s));
}

vec2 activate_and_slope(uint activation, float z) {
  switch (activation) {
  case ACT_SILU: return silu_and_slope(z);
  case ACT_RELU: return vec2(max(z, 0.0), z > 0.0 ? 1.0 : 0.0);
  case ACT_ELU1: return z > 0.0 ? vec2(z + 1.0, 1.0) : vec2(accurate_exp(z));
  case ACT_POWLU: return powlu_and_slope(z);
  case ACT_SIGMOID: return vec2(sigmoid(z), sigmoid(z) * (1.0 - sigmoid(z)));
  default: return vec2(z, 1.0);
  }
}

float slope(uint activation, float z) { return activate_and_slope(activation, z).y; }
