#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// o[t,h] = o[t,h] / sqrt(mean(o[t,h]^2) + eps) * weight (* silu(gate[t,h])), in place.
// o, gate (T, heads Dv), weight (1, Dv) or one per head. Without has_norm only the gate is applied. Workgroups (T,
// any): the subgroups of a token's workgroups share its heads. Any Dv.
#include "stored.glsl"
#include "output_norm.h"
layout(local_size_x_id = OUTPUT_NORM_SPEC_LANES) in;
layout(constant_id = OUTPUT_NORM_SPEC_FOURS) const uint FOURS = 0;
layout(set = 0, binding = OUTPUT_NORM_O) buffer o_block { stored o[]; };
layout(set = 0, binding = OUTPUT_NORM_GATE) readonly buffer gate_block { float gate[]; };
layout(set = 0, binding = OUTPUT_NORM_WEIGHT) readonly buffer weight_block { float weight[]; };
layout(set = 0, binding = OUTPUT_NORM_O) buffer o4_block { stored4 o4[]; };
layout(set = 0, binding = OUTPUT_NORM_GATE) readonly buffer gate4_block { vec4 gate4[]; };
layout(set = 0, binding = OUTPUT_NORM_WEIGHT) readonly buffer weight4_block { vec4 weight4[]; };
#include "activation.glsl"
uint lane, width; // among the subgroup's existing invocations: not every device fills subgroups
const uint KEPT = 4; // elements kept for the product; longer heads are partly read again
const uint HELD = FOURS == 0 ? 1 : FOURS; // vectors of four, if all of a head are kept

void head_in_fours(uint t, uint h) {
  uint from = t * args.o_stride + h * args.Dv;
  vec4 held[HELD], weights[HELD], gates[HELD];
  float sum = 0.0, factor = 1.0;
  [[unroll]] for (uint i = 0; i < HELD; i++) {
    uint d = 4 * (lane + i * width);
    bool inside = d < args.Dv;
    held[i] = inside ? LOADED4(o4[(from + d) / 4]) : vec4(0.0);
    if (args.has_norm != 0 && inside) weights[i] = weight4[(h * args.weight_step + d) / 4];
    if (args.has_gate != 0 && inside) gates[i] = gate4[(t * args.gate_stride + h * args.Dv + d) / 4];
    sum += dot(held[i], held[i]);
  }
  if (args.has_norm != 0) factor = accurate_inversesqrt(subgroupAdd(sum) / float(args.Dv) + args.eps);
  [[unroll]] for (uint i = 0; i < HELD; i++) {
    uint d = 4 * (lane + i * width);
    vec4 value = held[i] * factor;
    if (args.has_norm != 0) value *= weights[i];
    if (args.has_gate != 0)
      [[unroll]] for (uint j = 0; j < 4; j++) value[j] *= silu(gates[i][j]);
    if (d < args.Dv) o4[(from + d) / 4] = STORED4(value);
  }
}

void finish(uint t, uint h, uint d, float value) { // value: o times the factor of its head
  if (args.has_norm != 0) value *= weight[h * args.weight_step + d];
  if (args.has_gate != 0) value *= silu(gate[t * args.gate_stride + h * args.Dv + d]);
  o[t * args.o_stride + h * args.Dv + d] = STORED(value);
}

void head(uint t, uint h) {
  uint from = t * args.o_stride + h * args.Dv, rest = lane + KEPT * width;
  float kept[KEPT], sum = 0.0, factor = 1.0;
  [[unroll]] for (uint i = 0; i < KEPT; i++) {
    uint d = lane + i * width;
    kept[i] = d < args.Dv ? float(o[from + d]) : 0.0;
    sum += kept[i] * kept[i];
  }
  if (args.has_norm != 0) {
    for (uint d = rest; d < args.Dv; d += width) sum += float(o[from + d]) * float(o[from + d]);
    factor = accurate_inversesqrt(subgroupAdd(sum) / float(args.Dv) + args.eps);
  }
  [[unroll]] for (uint i = 0; i < KEPT; i++) {
    uint d = lane + i * width;
    if (d < args.Dv) finish(t, h, d, kept[i] * factor);
  }
  for (uint d = rest; d < args.Dv; d += width) finish(t, h, d, float(o[from + d]) * factor);
}

void main() {
  lane = subgroupExclusiveAdd(1u);
  width = subgroupAdd(1u);
  uint step = gl_NumWorkGroups.y * gl_NumSubgroups;
  for (uint h = gl_WorkGroupID.y * gl_NumSubgroups + gl_SubgroupID; h < args.heads; h += step) {
    if (FOURS != 0)
      head_in_fours(gl_WorkGroupID.x, h);
    else
      head(gl_WorkGroupID.x, h);
  }
}
