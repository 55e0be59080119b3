#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// The first `heads` heads of Dk columns: y = norm(act(x)); with f the norm's factor and y in the bracket, the L2 norm's
// epsilon needs no term:
//   L2: f (dy - y sum dy y);  SUM: f (dy - sum dy y);  L1: f (dy - sign(y) sum dy y);  all times act'(x)
// Other columns: dy. dx = or += these. Workgroups (ceil(T / KEYS_BACK_ROWS), ceil(cols / Dk)): Dk columns of some rows
// each, a row by one subgroup.
#include "keys_back.h"
#include "slope.glsl"
layout(local_size_x_id = KEYS_BACK_SPEC_LANES) in;
layout(set = 0, binding = KEYS_BACK_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = KEYS_BACK_Y) readonly buffer y_block { float y[]; };
layout(set = 0, binding = KEYS_BACK_DY) readonly buffer dy_block { float dy[]; };
layout(set = 0, binding = KEYS_BACK_DX) buffer dx_block { float dx[]; };

uint lane, width; // among the subgroup's existing invocations: not every device fills subgroups
const uint KEPT = 4; // columns kept between the sums and the end; those of longer heads are read again

struct column {
  float x, y, dy;
};

column read(uint t, uint i) {
  return column(x[t * args.x_stride + i], y[t * args.y_stride + i], dy[t * args.dy_stride + i]);
}

void give(uint t, uint i, float d) {
  uint to = t * args.dx_stride + i;
  dx[to] = (args.add != 0 ? dx[to] : 0.0) + d;
}

// The terms of the norm's sum and of sum dy y.
vec2 terms(column c) {
  float z = activate(args.activation, c.x);
  return vec2(args.norm == NORM_L2 ? z * z : args.norm == NORM_L1 ? abs(z) : z, c.dy * c.y);
}

float gradient(column c, float factor, float dots) {
  float d = c.dy;
  if (args.norm == NORM_L2) d -= c.y * dots;
  if (args.norm == NORM_SUM) d -= dots;
  if (args.norm == NORM_L1) d -= sign(c.y) * dots;
  return factor * d * slope(args.activation, c.x);
}

void head_back(uint t, uint first) {
  uint end = first + args.Dk, rest = first + lane + KEPT * width;
  column kept[KEPT];
  vec2 sums = vec2(0.0);
  [[unroll]] for (uint k = 0; k < KEPT; k++) {
    uint i = first + lane + k * width;
    kept[k] = read(t, min(i, end - 1));
    if (i < end) sums += terms(kept[k]);
  }
  for (uint i = rest; i < end; i += width) sums += terms(read(t, i));
  sums = subgroupAdd(sums);
  float factor = 1.0;
  if (args.norm == NORM_L2) factor = accurate_inversesqrt(sums.x + 1e-6);
  if (args.norm == NORM_SUM || args.norm == NORM_L1) factor = sums.x != 0.0 ? 1.0 / sums.x : 0.0;
  [[unroll]] for (uint k = 0; k < KEPT; k++) {
    uint i = first + lane + k * width;
    if (i < end) give(t, i, gradient(kept[k], factor, sums.y));
  }
  for (uint i = rest; i < end; i += width) give(t, i, gradient(read(t, i), factor, sums.y));
}

void main() {
  lane = subgroupExclusiveAdd(1u);
  width = subgroupAdd(1u);
  uint row = gl_WorkGroupID.x * KEYS_BACK_ROWS, end = min(row + KEYS_BACK_ROWS, args.T);
  uint first = gl_WorkGroupID.y * args.Dk, last = min(first + args.Dk, args.cols);
  for (uint t = row + gl_SubgroupID; t < end; t += gl_NumSubgroups) {
    if (gl_WorkGroupID.y < args.heads)
      head_back(t, first);
    else
      for (uint i = first + lane; i < last; i += width) give(t, i, dy[t * args.dy_stride + i]);
  }
}
