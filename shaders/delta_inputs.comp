#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// Query and key heads: y = norm(act(x)) per head of Dk numbers, in place.
//   L2: x / sqrt(sum x^2 + 1e-6);  SUM: x / sum x;  L1: x / sum |x|
// Gates: beta[t,j] = beta_scale sigmoid(ba[t,j]);  g[t,j] = -e^A_log[j] softplus(ba[t, betas + j] + dt_bias[j])
// qk (T, heads pitch), beta (T, betas), g (T, decays), ba (T, betas + decays). Workgroups (T, any): the subgroups of a
// token's share its heads, and its gates as one more. Any sizes.
#include "stored.glsl"
#include "delta_inputs.h"
layout(local_size_x_id = DELTA_INPUTS_SPEC_LANES) in;
layout(set = 0, binding = DELTA_INPUTS_QK) buffer qk_block { stored qk[]; };
layout(set = 0, binding = DELTA_INPUTS_BETA) writeonly buffer beta_block { float beta[]; };
layout(set = 0, binding = DELTA_INPUTS_G) writeonly buffer g_block { float g[]; };
layout(set = 0, binding = DELTA_INPUTS_BA) readonly buffer ba_block { float ba[]; };
layout(set = 0, binding = DELTA_INPUTS_A_LOG) readonly buffer a_log_block { float A_log[]; };
layout(set = 0, binding = DELTA_INPUTS_DT_BIAS) readonly buffer dt_bias_block { float dt_bias[]; };
#include "activation.glsl"
uint lane, width; // among the invocations of the subgroup that there are: not every device fills subgroups
const uint KEPT = 4; // activated numbers an invocation keeps from sum to division; of longer heads some are read again

void gates(uint t) {
  for (uint j = lane; j < args.betas; j += width)
    beta[t * args.beta_stride + j] =
        args.beta_scale * (args.has_beta != 0 ? sigmoid(ba[t * args.ba_stride + j]) : 1.0);
  if (args.gated == 0) return;
  uint from = t * args.ba_stride + (args.has_beta != 0 ? args.betas : 0);
  for (uint j = lane; j < args.decays; j += width)
    g[t * args.g_stride + j] = -accurate_exp(A_log[j]) * softplus(ba[from + j] + dt_bias[j]);
}

float activated(uint from, uint d) { return d < args.Dk ? activate(args.activation, float(qk[from + d])) : 0.0; }

float summand(float x) { return args.norm == NORM_L2 ? x * x : args.norm == NORM_L1 ? abs(x) : x; }

void head(uint t, uint h) {
  uint from = t * args.qk_stride + h * args.pitch, rest = lane + KEPT * width;
  float kept[KEPT], sum = 0.0;
  [[unroll]] for (uint i = 0; i < KEPT; i++) {
    kept[i] = activated(from, lane + i * width);
    sum += summand(kept[i]);
  }
  for (uint d = rest; d < args.Dk; d += width) sum += summand(activated(from, d));
  float factor = 1.0;
  if (args.norm != NORM_NONE) {
    sum = subgroupAdd(sum);
    factor = args.norm == NORM_L2 ? accurate_inversesqrt(sum + 1e-6) : sum != 0.0 ? 1.0 / sum : 0.0;
  }
  [[unroll]] for (uint i = 0; i < KEPT; i++) {
    uint d = lane + i * width;
    if (d < args.Dk) qk[from + d] = STORED(kept[i] * factor);
  }
  for (uint d = rest; d < args.Dk; d += width) qk[from + d] = STORED(activated(from, d) * factor);
  for (uint d = args.Dk + lane; d < args.pitch; d += width) qk[from + d] = STORED(0.0);
}

void main() {
  lane = subgroupExclusiveAdd(1u);
  width = subgroupAdd(1u);
  uint t = gl_WorkGroupID.x, step = gl_NumWorkGroups.y * gl_NumSubgroups;
  for (uint h = gl_WorkGroupID.y * gl_NumSubgroups + gl_SubgroupID; h <= args.heads; h += step) {
    if (h == args.heads)
      gates(t);
    else
      head(t, h);
  }
}
