#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// Query and key heads: qk = norm(act(x)) per head of Dk elements; x may be qk. delta_gates.glsl has the gates and norms.
// x, qk (T, heads pitch), beta (T, betas), g (T, decays), ba (T, betas + decays). Workgroups (T, any): the subgroups of a
// token's workgroups share its heads; its gates count as one more head. Any sizes.
#include "stored.glsl"
#include "delta_inputs.h"
layout(local_size_x_id = DELTA_INPUTS_SPEC_LANES) in;
layout(set = 0, binding = DELTA_INPUTS_X) readonly buffer x_block { stored x[]; };
layout(set = 0, binding = DELTA_INPUTS_QK) writeonly buffer qk_block { stored qk[]; };
layout(set = 0, binding = DELTA_INPUTS_BETA) writeonly buffer beta_block { float beta[]; };
layout(set = 0, binding = DELTA_INPUTS_G) writeonly buffer g_block { float g[]; };
layout(set = 0, binding = DELTA_INPUTS_BA) readonly buffer ba_block { float ba[]; };
layout(set = 0, binding = DELTA_INPUTS_A_LOG) readonly buffer a_log_block { float A_log[]; };
layout(set = 0, binding = DELTA_INPUTS_DT_BIAS) readonly buffer dt_bias_block { float dt_bias[]; };
#include "activation.glsl"
uint lane, width; // among the subgroup's existing invocations: not every device fills subgroups
const uint KEPT = 4; // activated elements kept for the division; longer heads are partly read again

#include "delta_gates.glsl"

float activated(uint from, uint d) { return d < args.Dk ? activate(args.activation, float(x[from + d])) : 0.0; }

void head(uint t, uint h) {
  uint from = t * args.x_stride + h * args.pitch, to = t * args.qk_stride + h * args.pitch, rest = lane + KEPT * width;
  float kept[KEPT], sum = 0.0;
  [[unroll]] for (uint i = 0; i < KEPT; i++) {
    kept[i] = activated(from, lane + i * width);
    sum += summand(args.norm, kept[i]);
  }
  for (uint d = rest; d < args.Dk; d += width) sum += summand(args.norm, activated(from, d));
  float factor = norm_factor(args.norm, sum);
  [[unroll]] for (uint i = 0; i < KEPT; i++) {
    uint d = lane + i * width;
    if (d < args.Dk) qk[to + d] = STORED(kept[i] * factor);
  }
  for (uint d = rest; d < args.Dk; d += width) qk[to + d] = STORED(activated(from, d) * factor);
  for (uint d = args.Dk + lane; d < args.pitch; d += width) qk[to + d] = STORED(0.0);
}

void main() {
  lane = subgroupExclusiveAdd(1u);
  width = subgroupAdd(1u);
  uint t = gl_WorkGroupID.x, step = gl_NumWorkGroups.y * gl_NumSubgroups;
  for (uint h = gl_WorkGroupID.y * gl_NumSubgroups + gl_SubgroupID; h <= args.heads; h += step) {
    if (h == args.heads)
      gates(t, 1);
    else
      head(t, h);
  }
}
