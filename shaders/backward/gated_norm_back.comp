#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// Per group of n columns:
//   FIRST     y = x r weight silu(gate),       r of x
//   OF_GATED  y = a r weight, a = x silu(gate), r of a
//   ABSENT    y = x silu(gate)
// Without a gate, silu(gate) is 1. Workgroups (ceil(T / GATED_NORM_BACK_ROWS), groups + 1): one group of some rows each,
// whose terms of dweight it adds up in parts; the last copies dy's other columns.
#include "gated_norm_back.h"
#include "slope.glsl"
layout(local_size_x_id = GATED_NORM_BACK_SPEC_LANES) in;
layout(set = 0, binding = GATED_NORM_BACK_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = GATED_NORM_BACK_GATE) readonly buffer gate_block { float gate[]; };
layout(set = 0, binding = GATED_NORM_BACK_WEIGHT) readonly buffer weight_block { float weight[]; };
layout(set = 0, binding = GATED_NORM_BACK_DY) readonly buffer dy_block { float dy[]; };
layout(set = 0, binding = GATED_NORM_BACK_DX) buffer dx_block { float dx[]; };
layout(set = 0, binding = GATED_NORM_BACK_DGATE) buffer dgate_block { float dgate[]; };
layout(set = 0, binding = GATED_NORM_BACK_PARTS) buffer parts_block { float parts[]; };
#include "reduce.glsl"

void give(uint t, uint i, float d) {
  uint to = t * args.dx_stride + i;
  dx[to] = (args.add != 0 ? dx[to] : 0.0) + d;
}

void copy_others(uint t) {
  for (uint i = gl_LocalInvocationID.x; i < args.cols; i += gl_WorkGroupSize.x)
    if (i < args.from || i >= args.from + args.groups * args.n)
      give(t, i, dy[t * args.dy_stride + i]);
}

void group_back(uint t, uint h) {
  uint lane = gl_LocalInvocationID.x;
  uint at = args.from + h * args.n, gate_at = t * args.gate_stride + h * args.n;
  bool absent = args.place == BACK_ABSENT, of_gated = args.place == BACK_OF_GATED;
  float squares = 0.0, dots = 0.0;
  for (uint i = lane; i < args.n; i += gl_WorkGroupSize.x) {
    float s = args.gated != 0 ? silu(gate[gate_at + i]) : 1.0, v = x[t * args.x_stride + at + i];
    float w = absent ? 1.0 : weight[h * args.weight_step + i];
    float a = of_gated ? v * s : v;
    squares += a * a;
    dots += dy[t * args.dy_stride + at + i] * w * v * s;
  }
  squares = workgroup_sum(squares);
  dots = workgroup_sum(dots);
  float r = absent ? 1.0 : accurate_inversesqrt(squares / float(args.n) + args.eps);
  float mean = absent ? 0.0 : dots * r / float(args.n);
  for (uint i = lane; i < args.n; i += gl_WorkGroupSize.x) {
    float z = args.gated != 0 ? gate[gate_at + i] : 0.0, s = args.gated != 0 ? silu(z) : 1.0;
    float v = x[t * args.x_stride + at + i], d = dy[t * args.dy_stride + at + i];
    float weighted = absent ? d : d * weight[h * args.weight_step + i];
    uint part = (t / GATED_NORM_BACK_ROWS * args.groups + h) * args.n + i;
    if (!absent) parts[part] = (t % GATED_NORM_BACK_ROWS == 0 ? 0.0 : parts[part]) + d * v * s * r;
    // Of x and of silu(gate). OF_GATED: a's gradient goes to both.
    float da = r * (weighted - v * s * r * mean);
    float to_x = of_gated ? da * s : r * (weighted * s - v * r * mean);
    float to_s = of_gated ? da * v : r * weighted * v;
    give(t, at + i, to_x);
    if (args.gated != 0) dgate[t * args.dgate_stride + h * args.n + i] += to_s * silu_slope(z);
  }
}

void main() {
  uint first = gl_WorkGroupID.x * GATED_NORM_BACK_ROWS, end = min(first + GATED_NORM_BACK_ROWS, args.T);
  for (uint t = first; t < end; t++) {
    if (gl_WorkGroupID.y < args.groups)
      group_back(t, gl_WorkGroupID.y);
    else
      copy_others(t);
  }
}
