#version 450
#extension GL_GOOGLE_include_directive : require
#include "stored.glsl"
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// y, in place, with the root mean square over each group of n elements:
//   OF_GATED: rms(y silu(z)) weight;  FIRST: rms(y) weight silu(z);  ABSENT: y silu(z)
// y, z (T, groups n), weight (1, groups n). Workgroups (T, groups): one group of one token. Its invocations hold it in
// registers from the sum to the end, or read it twice. Any n.
#include "gated_norm.h"
layout(local_size_x_id = GATED_NORM_SPEC_LANES) in;
layout(constant_id = GATED_NORM_SPEC_VECTORS) const uint VECTORS = 0;
layout(set = 0, binding = GATED_NORM_Y) buffer y_block { stored y[]; };
layout(set = 0, binding = GATED_NORM_Y) buffer y4_block { stored4 y4[]; };
layout(set = 0, binding = GATED_NORM_Z) readonly buffer z_block { float z[]; };
layout(set = 0, binding = GATED_NORM_Z) readonly buffer z4_block { vec4 z4[]; };
layout(set = 0, binding = GATED_NORM_WEIGHT) readonly buffer weight_block { float weight[]; };
layout(set = 0, binding = GATED_NORM_WEIGHT) readonly buffer weight4_block { vec4 weight4[]; };
#include "activation.glsl"
#include "reduce.glsl"

const uint HELD = VECTORS == 0 ? 1 : VECTORS;

float factor_of(float sum) { return accurate_inversesqrt(workgroup_sum(sum) / float(args.n) + args.eps); }

// Past the end the last vector of four is read again; it does not count.
void in_registers(uint y_at, uint z_at, uint column) {
  uint lane = gl_LocalInvocationID.x, fours = args.n / 4;
  stored4 read[HELD];
  vec4 gates[HELD], weights[HELD], held[HELD];
  [[unroll]] for (uint i = 0; i < HELD; i++) {
    uint d = min(lane + i * gl_WorkGroupSize.x, fours - 1);
    read[i] = y4[y_at / 4 + d];
    gates[i] = z4[z_at / 4 + d];
    weights[i] = args.place == PLACE_ABSENT ? vec4(1.0) : weight4[column / 4 + d];
  }
  float sum = 0.0;
  [[unroll]] for (uint i = 0; i < HELD; i++) {
    [[unroll]] for (uint k = 0; k < 4; k++) gates[i][k] = silu(gates[i][k]);
    held[i] = LOADED4(read[i]);
    vec4 counted = args.place == PLACE_OF_GATED ? held[i] * gates[i] : held[i];
    if (lane + i * gl_WorkGroupSize.x < fours) sum += dot(counted, counted);
  }
  float factor = args.place == PLACE_ABSENT ? 1.0 : factor_of(sum);
  [[unroll]] for (uint i = 0; i < HELD; i++) {
    uint d = lane + i * gl_WorkGroupSize.x;
    if (d < fours) y4[y_at / 4 + d] = STORED4(held[i] * gates[i] * factor * weights[i]);
  }
}

void main() {
  uint t = gl_WorkGroupID.x, lane = gl_LocalInvocationID.x, column = gl_WorkGroupID.y * args.n;
  uint y_at = t * args.y_stride + column, z_at = t * args.z_stride + column;
  if (VECTORS != 0) {
    in_registers(y_at, z_at, column);
    return;
  }
  float factor = 1.0;
  if (args.place != PLACE_ABSENT) {
    float sum = 0.0;
    for (uint i = lane; i < args.n; i += gl_WorkGroupSize.x) {
      float value = float(y[y_at + i]) * (args.place == PLACE_OF_GATED ? silu(z[z_at + i]) : 1.0);
      sum += value * value;
    }
    factor = factor_of(sum);
  }
  for (uint i = lane; i < args.n; i += gl_WorkGroupSize.x) {
    float value = float(y[y_at + i]) * silu(z[z_at + i]) * factor;
    y[y_at + i] = STORED(args.place == PLACE_ABSENT ? value : value * weight[column + i]);
  }
}
