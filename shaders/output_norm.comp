#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// o[t,h] = o[t,h] / sqrt(mean(o[t,h]^2) + eps) * weight (* silu(gate[t,h])), in place.
// o, gate (T, heads Dv), weight (1, Dv) or one for each head. Without has_norm only the gate. Workgroups (T, heads):
// one head of one token. Any Dv.
#include "stored.glsl"
#include "output_norm.h"
layout(local_size_x_id = OUTPUT_NORM_SPEC_LANES) in;
layout(set = 0, binding = OUTPUT_NORM_O) buffer o_block { stored o[]; };
layout(set = 0, binding = OUTPUT_NORM_GATE) readonly buffer gate_block { float gate[]; };
layout(set = 0, binding = OUTPUT_NORM_WEIGHT) readonly buffer weight_block { float weight[]; };
#include "activation.glsl"
#include "reduce.glsl"

void main() {
  uint t = gl_WorkGroupID.x, lane = gl_LocalInvocationID.x;
  uint column = gl_WorkGroupID.y * args.Dv;
  uint from = t * args.o_stride + column;
  float factor = 1.0;
  if (args.has_norm != 0) {
    float sum = 0.0;
    for (uint d = lane; d < args.Dv; d += gl_WorkGroupSize.x) sum += float(o[from + d]) * float(o[from + d]);
    factor = 1.0 / sqrt(workgroup_sum(sum) / float(args.Dv) + args.eps);
  }
  for (uint d = lane; d < args.Dv; d += gl_WorkGroupSize.x) {
    float value = float(o[from + d]);
    if (args.has_norm != 0) value *= factor * weight[gl_WorkGroupID.y * args.weight_step + d];
    if (args.has_gate != 0) value *= silu(gate[t * args.gate_stride + column + d]);
    o[from + d] = STORED(value);
  }
}
