#version 450
#extension GL_GOOGLE_include_directive : require
#include "stored.glsl"
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// y is the norm of x, which may be the same memory: rms(v) is v divided by the root mean square of its group of n
// numbers.
//   OF_GATED: rms(x silu(z)) weight;  FIRST: rms(x) weight silu(z), or rms(x) weight;  ABSENT: x silu(z)
// x, y, z (T, groups n), x and y from column `from` on, weight (1, groups n), or (1, n) for all groups. One workgroup computes
// one group, in a grid of (T, groups). With SUBGROUPS, one subgroup computes one group; the grid is (T, any), and the
// subgroups of a token's workgroups share its groups. Numbers stay in registers between the sum and the end, except
// those of a long group read one by one, beyond KEPT an invocation. Any n.
#include "gated_norm.h"
layout(local_size_x_id = GATED_NORM_SPEC_LANES) in;
layout(constant_id = GATED_NORM_SPEC_VECTORS) const uint VECTORS = 0;
layout(constant_id = GATED_NORM_SPEC_SUBGROUPS) const uint SUBGROUPS = 0;
layout(constant_id = GATED_NORM_SPEC_PLACE) const uint PLACE = PLACE_OF_GATED;
layout(constant_id = GATED_NORM_SPEC_GATED) const uint GATED = 1;
layout(set = 0, binding = GATED_NORM_X) readonly buffer x_block { stored x[]; };
layout(set = 0, binding = GATED_NORM_X) readonly buffer x4_block { stored4 x4[]; };
layout(set = 0, binding = GATED_NORM_Y) writeonly buffer y_block { stored y[]; };
layout(set = 0, binding = GATED_NORM_Y) writeonly buffer y4_block { stored4 y4[]; };
layout(set = 0, binding = GATED_NORM_Z) readonly buffer z_block { float z[]; };
layout(set = 0, binding = GATED_NORM_Z) readonly buffer z4_block { vec4 z4[]; };
layout(set = 0, binding = GATED_NORM_WEIGHT) readonly buffer weight_block { float weight[]; };
layout(set = 0, binding = GATED_NORM_WEIGHT) readonly buffer weight4_block { vec4 weight4[]; };
#include "activation.glsl"
#include "reduce.glsl"

uint lane, width; // this invocation's index in its group, and the group's number of invocations. With SUBGROUPS only
// active ones count: not every device fills a subgroup.
const uint HELD = VECTORS == 0 ? 1 : VECTORS;
// Numbers an invocation keeps in registers from the sum to the end; in longer groups the rest are read twice.
const uint KEPT = 4;

float factor_of(float sum) {
  if (PLACE == PLACE_ABSENT) return 1.0;
  return accurate_inversesqrt((SUBGROUPS != 0 ? subgroupAdd(sum) : workgroup_sum(sum)) / float(args.n) + args.eps);
}

// Reads past the end return the group's last four numbers again; they are left out of the sum and not written.
void in_fours(uint x_at, uint y_at, uint z_at, uint weight_at) {
  uint fours = args.n / 4;
  stored4 read[HELD];
  vec4 gates[HELD], weights[HELD], held[HELD];
  [[unroll]] for (uint i = 0; i < HELD; i++) {
    uint d = min(lane + i * width, fours - 1);
    read[i] = x4[x_at / 4 + d];
    gates[i] = GATED != 0 ? z4[z_at / 4 + d] : vec4(0.0);
    weights[i] = PLACE == PLACE_ABSENT ? vec4(1.0) : weight4[weight_at / 4 + d];
  }
  float sum = 0.0;
  [[unroll]] for (uint i = 0; i < HELD; i++) {
    held[i] = LOADED4(read[i]);
    if (GATED != 0) {
      [[unroll]] for (uint k = 0; k < 4; k++) gates[i][k] = silu(gates[i][k]);
      if (PLACE == PLACE_OF_GATED) held[i] *= gates[i];
    }
    if (lane + i * width < fours) sum += dot(held[i], held[i]);
  }
  float factor = factor_of(sum);
  [[unroll]] for (uint i = 0; i < HELD; i++) {
    uint d = lane + i * width;
    vec4 value = held[i] * factor * weights[i];
    if (GATED != 0 && PLACE != PLACE_OF_GATED) value *= gates[i];
    if (d < fours) y4[y_at / 4 + d] = STORED4(value);
  }
}

float counted(uint x_at, uint z_at) {
  return float(x[x_at]) * (PLACE == PLACE_OF_GATED ? silu(z[z_at]) : 1.0);
}

void finish(uint y_at, uint z_at, uint weight_at, float value) { // value: what counted times the factor
  if (PLACE != PLACE_ABSENT) value *= weight[weight_at];
  if (GATED != 0 && PLACE != PLACE_OF_GATED) value *= silu(z[z_at]);
  y[y_at] = STORED(value);
}

void one_by_one(uint x_at, uint y_at, uint z_at, uint weight_at) {
  uint rest = lane + KEPT * width;
  float kept[KEPT], sum = 0.0;
  [[unroll]] for (uint i = 0; i < KEPT; i++) {
    uint d = lane + i * width;
    kept[i] = d < args.n ? counted(x_at + d, z_at + d) : 0.0;
    sum += kept[i] * kept[i];
  }
  for (uint d = rest; d < args.n; d += width) {
    float value = counted(x_at + d, z_at + d);
    sum += value * value;
  }
  float factor = factor_of(sum);
  [[unroll]] for (uint i = 0; i < KEPT; i++) {
    uint d = lane + i * width;
    if (d < args.n) finish(y_at + d, z_at + d, weight_at + d, kept[i] * factor);
  }
  for (uint d = rest; d < args.n; d += width)
    finish(y_at + d, z_at + d, weight_at + d, counted(x_at + d, z_at + d) * factor);
}

void group(uint t, uint h) {
  uint x_at = t * args.x_stride + args.from + h * args.n, y_at = t * args.y_stride + args.from + h * args.n;
  uint z_at = t * args.z_stride + h * args.n, weight_at = h * args.weight_step;
  if (VECTORS != 0)
    in_fours(x_at, y_at, z_at, weight_at);
  else
    one_by_one(x_at, y_at, z_at, weight_at);
}

void main() {
  if (SUBGROUPS == 0) {
    lane = gl_LocalInvocationID.x;
    width = gl_WorkGroupSize.x;
    group(gl_WorkGroupID.x, gl_WorkGroupID.y);
    return;
  }
  lane = subgroupExclusiveAdd(1u);
  width = subgroupAdd(1u);
  uint step = gl_NumWorkGroups.y * gl_NumSubgroups;
  for (uint h = gl_WorkGroupID.y * gl_NumSubgroups + gl_SubgroupID; h < args.groups; h += step)
    group(gl_WorkGroupID.x, h);
}
