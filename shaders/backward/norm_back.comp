#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// With r = (mean x^2 + eps)^-1/2, n = x r, dn = dy weight:  dx += r (dn - n mean(dn n)),  parts = dy n.
// Workgroups (T): one row each.
#include "norm_back.h"
layout(local_size_x_id = NORM_BACK_SPEC_LANES) in;
layout(set = 0, binding = NORM_BACK_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = NORM_BACK_WEIGHT) readonly buffer weight_block { float weight[]; };
layout(set = 0, binding = NORM_BACK_DY) readonly buffer dy_block { float dy[]; };
layout(set = 0, binding = NORM_BACK_DX) buffer dx_block { float dx[]; };
layout(set = 0, binding = NORM_BACK_PARTS) writeonly buffer parts_block { float parts[]; };
#include "accurate.glsl"
#include "reduce.glsl"

void main() {
  uint t = gl_WorkGroupID.x, lane = gl_LocalInvocationID.x;
  float squares = 0.0, dot_sum = 0.0;
  for (uint i = lane; i < args.D; i += gl_WorkGroupSize.x) {
    float v = x[t * args.x_stride + i];
    squares += v * v;
    dot_sum += v * dy[t * args.dy_stride + i] * weight[i];
  }
  float r = accurate_inversesqrt(workgroup_sum(squares) / float(args.D) + args.eps);
  float mean = workgroup_sum(dot_sum) * r / float(args.D);
  for (uint i = lane; i < args.D; i += gl_WorkGroupSize.x) {
    float n = x[t * args.x_stride + i] * r, d = dy[t * args.dy_stride + i];
    parts[t * args.D + i] = d * n;
    dx[t * args.dx_stride + i] += r * (d * weight[i] - n * mean);
  }
}
