#version 450
#extension GL_GOOGLE_include_directive : require
// y = f(a) or f(a, b), n numbers: shaders/common/accurate.glsl's functions and what is made of them. One number an invocation.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint WHICH = 0;
layout(set = 0, binding = 0) readonly buffer a_block { float a[]; };
layout(set = 0, binding = 1) readonly buffer b_block { float b[]; };
layout(set = 0, binding = 2) writeonly buffer y_block { float y[]; };
layout(push_constant) uniform args_block { uint n; };
#include "activation.glsl"
#include "test_accurate.h"

float value(float x, float z) {
  switch (WHICH) {
  case F_EXP: return accurate_exp(x);
  case F_LOG: return accurate_log(x);
  case F_LOG1P: return accurate_log1p(x);
  case F_SIGMOID: return sigmoid(x);
  case F_SILU: return silu(x);
  case F_SOFTPLUS: return softplus(x);
  case F_ELU1: return activate(ACT_ELU1, x);
  case F_POWLU: return activate(ACT_POWLU, x);
  case F_INVERSESQRT: return accurate_inversesqrt(x);
  case F_QUOTIENT: return x / z;
  case F_ROOT: return sqrt(x);
  case F_RECIPROCAL_ROOT: return 1.0 / sqrt(x);
  case F_DEVICE_EXP: return exp(x);
  case F_DEVICE_LOG: return log(x);
  case F_DEVICE_RSQRT: return inversesqrt(x);
  case F_DEVICE_SIGMOID: {
    float e = exp(-abs(x));
    return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
  }
  default: {
    float e = exp(x), w = 1.0 + e;
    return e < 1e-6 ? e : log(w) * (e / (w - 1.0));
  }
  }
}

void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i < n) y[i] = value(a[i], b[i]);
}
