#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// y (T, N) = x (T, K) w (N, K)^T (+ bias) (+ y): few tokens, where reading the weights once is what takes the time.
// Workgroups (ceil(N / ROWS), spread over x and y): ROWS outputs of all T tokens. An invocation reads groups of 8
// weights of every row, 16 bytes each when they have 16 bits, and keeps ROWS * TOKENS sums. Any T <= TOKENS, N, K.
#include "matvec.h"
layout(local_size_x_id = MATVEC_SPEC_LANES) in;
layout(constant_id = MATVEC_SPEC_ROWS) const uint ROWS = 2;
layout(constant_id = MATVEC_SPEC_TOKENS) const uint TOKENS = 1;
layout(constant_id = MATVEC_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(set = 0, binding = MATVEC_Y) buffer y_block { float y[]; };
layout(set = 0, binding = MATVEC_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = MATVEC_X4) readonly buffer x4_block { vec4 x4[]; };
layout(set = 0, binding = MATVEC_BIAS) readonly buffer bias_block { float bias[]; };
#define WEIGHTS_BINDING MATVEC_WEIGHTS
#include "weights.glsl"

const uint SUMS = ROWS * TOKENS;
shared float partial[gl_WorkGroupSize.x * SUMS / 4 + SUMS]; // subgroups have 4 lanes or more

// Four inputs of a token, zeros from K on: the zeros that end a row of weights must not meet a NaN.
vec4 inputs(uint t, uint k) {
  if (t >= args.T || k >= args.K) return vec4(0.0);
  uint i = t * args.x_stride + k;
  if (ALIGNED != 0) return x4[i / 4];
  uint left = args.K - k;
  return vec4(x[i], left > 1 ? x[i + 1] : 0.0, left > 2 ? x[i + 2] : 0.0, left > 3 ? x[i + 3] : 0.0);
}

void main() {
  uint lane = gl_LocalInvocationID.x;
  uint row = (gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x) * ROWS;
  if (row >= args.N) return;
  float sums[SUMS];
  [[unroll]] for (uint i = 0; i < SUMS; i++) sums[i] = 0.0;
  uint groups = (args.K + 7) / 8;
  for (uint g = lane; g < groups; g += gl_WorkGroupSize.x) {
    vec4 low[TOKENS], high[TOKENS];
    [[unroll]] for (uint t = 0; t < TOKENS; t++) {
      low[t] = inputs(t, g * 8);
      high[t] = inputs(t, g * 8 + 4);
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
      vec4 a, b;
      weight8(min(row + r, args.N - 1) * (args.w_stride / 8) + g, a, b);
      [[unroll]] for (uint t = 0; t < TOKENS; t++) sums[r * TOKENS + t] += dot(a, low[t]) + dot(b, high[t]);
    }
  }
  [[unroll]] for (uint i = 0; i < SUMS; i++) {
    float sum = subgroupAdd(sums[i]);
    if (subgroupElect()) partial[gl_SubgroupID * SUMS + i] = sum;
  }
  barrier();
  for (uint i = lane; i < SUMS; i += gl_WorkGroupSize.x) {
    uint n = row + i / TOKENS, t = i % TOKENS;
    if (n >= args.N || t >= args.T) continue;
    float sum = 0.0;
    for (uint s = 0; s < gl_NumSubgroups; s++) sum += partial[s * SUMS + i];
    n += args.first;
    if (args.has_bias != 0) sum += bias[n];
    uint at = t * args.y_stride + n;
    y[at] = args.add != 0 ? y[at] + sum : sum;
  }
}
