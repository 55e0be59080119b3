#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// The first `heads` heads of Dk columns: y = norm(act(x)); with f the norm's factor and y in the bracket, the L2 norm's
// epsilon needs no term:
//   L2: f (dy - y sum dy y);  SUM: f (dy - sum dy y);  L1: f (dy - sign(y) sum dy y);  all times act'(x)
// Other columns: dy. dx = or += these. Workgroups (ceil(T / KEYS_BACK_ROWS), heads + 1): one head of some rows each,
// the last the other columns.
#include "keys_back.h"
#include "slope.glsl"
layout(local_size_x_id = KEYS_BACK_SPEC_LANES) in;
layout(set = 0, binding = KEYS_BACK_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = KEYS_BACK_Y) readonly buffer y_block { float y[]; };
layout(set = 0, binding = KEYS_BACK_DY) readonly buffer dy_block { float dy[]; };
layout(set = 0, binding = KEYS_BACK_DX) buffer dx_block { float dx[]; };
#include "reduce.glsl"

void give(uint t, uint i, float d) {
  uint to = t * args.dx_stride + i;
  dx[to] = (args.add != 0 ? dx[to] : 0.0) + d;
}

void head_back(uint t, uint h) {
  uint lane = gl_LocalInvocationID.x;
  uint first = h * args.Dk;
  if (h == args.heads) {
    for (uint i = first + lane; i < args.cols; i += gl_WorkGroupSize.x)
      give(t, i, dy[t * args.dy_stride + i]);
    return;
  }
  float sum = 0.0, dots = 0.0;
  for (uint i = first + lane; i < first + args.Dk; i += gl_WorkGroupSize.x) {
    float z = activate(args.activation, x[t * args.x_stride + i]);
    sum += args.norm == NORM_L2 ? z * z : args.norm == NORM_L1 ? abs(z) : z;
    dots += dy[t * args.dy_stride + i] * y[t * args.y_stride + i];
  }
  sum = workgroup_sum(sum);
  dots = workgroup_sum(dots);
  float factor = 1.0;
  if (args.norm == NORM_L2) factor = accurate_inversesqrt(sum + 1e-6);
  if (args.norm == NORM_SUM || args.norm == NORM_L1) factor = sum != 0.0 ? 1.0 / sum : 0.0;
  for (uint i = first + lane; i < first + args.Dk; i += gl_WorkGroupSize.x) {
    float d = dy[t * args.dy_stride + i], normed = y[t * args.y_stride + i];
    if (args.norm == NORM_L2) d -= normed * dots;
    if (args.norm == NORM_SUM) d -= dots;
    if (args.norm == NORM_L1) d -= sign(normed) * dots;
    give(t, i, factor * d * slope(args.activation, x[t * args.x_stride + i]));
  }
}

void main() {
  uint first = gl_WorkGroupID.x * KEYS_BACK_ROWS, end = min(first + KEYS_BACK_ROWS, args.T);
  for (uint t = first; t < end; t++) head_back(t, gl_WorkGroupID.y);
}
