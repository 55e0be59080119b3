#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// With r = (mean x^2 + eps)^-1/2, n = x r, dn = dy weight:  dx = or += r (dn - n mean(dn n)),  parts = dy n.
// Workgroups (ceil(T / NORM_BACK_ROWS)): each adds up the terms of its rows in parts.
#include "norm_back.h"
layout(local_size_x_id = NORM_BACK_SPEC_LANES) in;
layout(set = 0, binding = NORM_BACK_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = NORM_BACK_WEIGHT) readonly buffer weight_block { float weight[]; };
layout(set = 0, binding = NORM_BACK_DY) readonly buffer dy_block { float dy[]; };
layout(set = 0, binding = NORM_BACK_DX) buffer dx_block { float dx[]; };
layout(set = 0, binding = NORM_BACK_PARTS) buffer parts_block { float parts[]; };
#include "accurate.glsl"
#include "reduce.glsl"

void row_back(uint t) {
  uint lane = gl_LocalInvocationID.x;
  bool first = t % NORM_BACK_ROWS == 0;
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
    uint part = t / NORM_BACK_ROWS * args.D + i;
    parts[part] = first ? d * n : parts[part] + d * n;
    uint to = t * args.dx_stride + i;
    dx[to] = (args.add != 0 ? dx[to] : 0.0) + r * (d * weight[i] - n * mean);
  }
}

void main() {
  uint first = gl_WorkGroupID.x * NORM_BACK_ROWS, end = min(first + NORM_BACK_ROWS, args.T);
  for (uint t = first; t < end; t++) row_back(t);
}
