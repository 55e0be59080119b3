#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// y[i] = x[i / share] w_e^T with e = ids[i]: only the rows of chosen experts are read. GATED: y = act(gate) * up.
// Workgroups (ceil(N / ROWS), R, spread over y and z): ROWS outputs of one row of y. Each invocation reads every
// LANES-th group of 8 weights. Any N, K.
#include "experts.h"
layout(local_size_x_id = EXPERTS_SPEC_LANES) in;
layout(constant_id = EXPERTS_SPEC_ROWS) const uint ROWS = 2;
layout(constant_id = EXPERTS_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = EXPERTS_SPEC_GATED) const uint GATED = 0;
layout(set = 0, binding = EXPERTS_Y) writeonly buffer y_block { float y[]; };
layout(set = 0, binding = EXPERTS_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = EXPERTS_X) readonly buffer x4_block { vec4 x4[]; };
layout(set = 0, binding = EXPERTS_IDS) readonly buffer ids_block { uint ids[]; };
#define WEIGHTS_BINDING EXPERTS_WEIGHTS
#define WEIGHTS_SPEC_FORMAT EXPERTS_SPEC_FORMAT
#include "activation.glsl"
#include "weights.glsl"

const uint W_ROWS = ROWS * (1 + GATED);
shared float partial[gl_WorkGroupSize.x * W_ROWS / 4 + W_ROWS]; // subgroups have 4 lanes or more

// Four inputs, zeros from K on: the zeros at the end of a row of weights must not multiply a NaN.
vec4 inputs(uint from, uint k) {
  if (k >= args.K) return vec4(0.0);
  if (ALIGNED != 0) return x4[(from + k) / 4];
  uint left = args.K - k, i = from + k;
  return vec4(x[i], left > 1 ? x[i + 1] : 0.0, left > 2 ? x[i + 2] : 0.0, left > 3 ? x[i + 3] : 0.0);
}

float total(uint i) {
  float sum = 0.0;
  for (uint s = 0; s < gl_NumSubgroups; s++) sum += partial[s * W_ROWS + i];
  return sum;
}

void main() {
  const uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.y + gl_WorkGroupID.z * gl_NumWorkGroups.y;
  const uint n0 = gl_WorkGroupID.x * ROWS;
  if (row >= args.R) return;
  const uint e = ids[row / args.k * args.ids_stride + row % args.k] - args.first; // wraps to a large number below first
  if (e >= args.count) return;
  float sums[W_ROWS];
  uint from[W_ROWS];
  [[unroll]] for (uint r = 0; r < W_ROWS; r++) {
    sums[r] = 0.0;
    from[r] = (e * args.N * (1 + GATED) + min(n0 + r % ROWS, args.N - 1) + r / ROWS * args.N) * (args.w_stride / 8);
  }
  const uint x_from = row / args.share * args.x_stride;
  for (uint g = lane; g < (args.K + 7) / 8; g += gl_WorkGroupSize.x) {
    PACKED8 w[W_ROWS];
    [[unroll]] for (uint r = 0; r < W_ROWS; r++) w[r] = packed8(from[r] + g);
    vec4 low = inputs(x_from, g * 8), high = inputs(x_from, g * 8 + 4);
    [[unroll]] for (uint r = 0; r < W_ROWS; r++) {
      vec4 a, b;
      widen8(w[r], a, b);
      sums[r] += dot(a, low) + dot(b, high);
    }
  }
  [[unroll]] for (uint r = 0; r < W_ROWS; r++) {
    float sum = subgroupAdd(sums[r]);
    if (subgroupElect()) partial[gl_SubgroupID * W_ROWS + r] = sum;
  }
  barrier();
  for (uint r = lane; r < ROWS; r += gl_WorkGroupSize.x) {
    if (n0 + r >= args.N) continue;
    float value = total(r);
    if (GATED != 0) value = activate(args.activation, value) * total(ROWS + r);
    y[row * args.y_stride + n0 + r] = value;
  }
}
