#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// y = x / sqrt(mean(x^2) + eps) * weight, per row of D.
// y, x (T, D), weight (1, D). Workgroups (rows of y): one row each. Its invocations hold it in registers from the sum
// to the end, or read it twice. Any D.
#include "stored.glsl"
#include "norm_ahead.h"
#include "rmsnorm.h"
layout(local_size_x_id = RMSNORM_SPEC_LANES) in;
layout(constant_id = RMSNORM_SPEC_VECTORS) const uint VECTORS = 0;
layout(set = 0, binding = RMSNORM_Y) writeonly buffer y_block { stored y[]; };
layout(set = 0, binding = RMSNORM_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = RMSNORM_WEIGHT) readonly buffer weight_block { float weight[]; };
layout(set = 0, binding = RMSNORM_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
layout(set = 0, binding = RMSNORM_Y) writeonly buffer y4_block { stored4 y4[]; };
layout(set = 0, binding = RMSNORM_X) readonly buffer x4_block { vec4 x4[]; };
layout(set = 0, binding = RMSNORM_WEIGHT) readonly buffer weight4_block { vec4 weight4[]; };
layout(set = 0, binding = RMSNORM_RMS) writeonly buffer rms_block { float rms[]; };
#include "accurate.glsl"
#include "reduce.glsl"

const uint HELD = VECTORS == 0 ? 1 : VECTORS;

float factor_of(float sum) {
  float factor = accurate_inversesqrt(workgroup_sum(sum) / float(args.D) + args.eps);
  if (args.keep != 0 && gl_LocalInvocationID.x == 0) rms[gl_WorkGroupID.x] = min(factor, NORM_AHEAD_MOST);
  return factor;
}

// Past the end the last vector of four is read again; it does not count.
void in_registers(uint row, uint source) {
  uint lane = gl_LocalInvocationID.x, fours = args.D / 4;
  vec4 held[HELD], weights[HELD];
  [[unroll]] for (uint i = 0; i < HELD; i++) {
    uint d = min(lane + i * gl_WorkGroupSize.x, fours - 1);
    held[i] = x4[source * (args.x_stride / 4) + d];
    weights[i] = weight4[d];
  }
  float sum = 0.0;
  [[unroll]] for (uint i = 0; i < HELD; i++)
    if (lane + i * gl_WorkGroupSize.x < fours) sum += dot(held[i], held[i]);
  float factor = factor_of(sum);
  [[unroll]] for (uint i = 0; i < HELD; i++) {
    uint d = lane + i * gl_WorkGroupSize.x;
    if (d < fours) y4[row * (args.y_stride / 4) + d] = STORED4(held[i] * factor * weights[i]);
  }
}

void main() {
  uint row = gl_WorkGroupID.x;
  uint lane = gl_LocalInvocationID.x;
  uint source = row;
  if (args.last != 0) {
    if (sequences[row].T == 0) return;
    source = sequences[row].row + sequences[row].T - 1;
  }
  if (VECTORS != 0) {
    in_registers(row, source);
    return;
  }
  uint from = source * args.x_stride;
  float sum = 0.0;
  for (uint d = lane; d < args.D; d += gl_WorkGroupSize.x) sum += x[from + d] * x[from + d];
  float factor = factor_of(sum);
  for (uint d = lane; d < args.D; d += gl_WorkGroupSize.x)
    y[row * args.y_stride + d] = STORED(x[from + d] * factor * weight[d]);
}
