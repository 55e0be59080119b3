#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// y, in place, with the root mean square over each group of n numbers:
//   OF_GATED: rms(y silu(z)) weight;  FIRST: rms(y) weight silu(z);  ABSENT: y silu(z)
// y, z (T, groups n), weight (1, groups n). Workgroups (T, groups): one group of one token. Any n.
#include "gated_norm.h"
layout(local_size_x_id = GATED_NORM_SPEC_LANES) in;
layout(set = 0, binding = GATED_NORM_Y) buffer y_block { float y[]; };
layout(set = 0, binding = GATED_NORM_Z) readonly buffer z_block { float z[]; };
layout(set = 0, binding = GATED_NORM_WEIGHT) readonly buffer weight_block { float weight[]; };
#include "activation.glsl"
#include "reduce.glsl"

void main() {
  uint t = gl_WorkGroupID.x, lane = gl_LocalInvocationID.x, column = gl_WorkGroupID.y * args.n;
  uint y_at = t * args.y_stride + column, z_at = t * args.z_stride + column;
  float factor = 1.0;
  if (args.place != PLACE_ABSENT) {
    float sum = 0.0;
    for (uint i = lane; i < args.n; i += gl_WorkGroupSize.x) {
      float value = y[y_at + i] * (args.place == PLACE_OF_GATED ? silu(z[z_at + i]) : 1.0);
      sum += value * value;
    }
    factor = accurate_inversesqrt(workgroup_sum(sum) / float(args.n) + args.eps);
  }
  for (uint i = lane; i < args.n; i += gl_WorkGroupSize.x) {
    float value = y[y_at + i] * silu(z[z_at + i]) * factor;
    y[y_at + i] = args.place == PLACE_ABSENT ? value : value * weight[column + i];
  }
}
