#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// y = x / sqrt(mean(x^2) + eps) * weight, per row of D.
// y, x (T, D), weight (1, D). Workgroups (rows of y): one row each. Any D.
#include "stored.glsl"
#include "rmsnorm.h"
layout(local_size_x_id = RMSNORM_SPEC_LANES) in;
layout(set = 0, binding = RMSNORM_Y) writeonly buffer y_block { stored y[]; };
layout(set = 0, binding = RMSNORM_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = RMSNORM_WEIGHT) readonly buffer weight_block { float weight[]; };
layout(set = 0, binding = RMSNORM_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
#include "reduce.glsl"

void main() {
  uint row = gl_WorkGroupID.x;
  uint lane = gl_LocalInvocationID.x;
  uint source = row;
  if (args.last != 0) {
    if (sequences[row].T == 0) return;
    source = sequences[row].row + sequences[row].T - 1;
  }
  uint from = source * args.x_stride;
  float sum = 0.0;
  for (uint d = lane; d < args.D; d += gl_WorkGroupSize.x) sum += x[from + d] * x[from + d];
  float factor = 1.0 / sqrt(workgroup_sum(sum) / float(args.D) + args.eps);
  for (uint d = lane; d < args.D; d += gl_WorkGroupSize.x)
    y[row * args.y_stride + d] = STORED(x[from + d] * factor * weight[d]);
}
