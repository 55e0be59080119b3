#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// Query and key heads: y = norm(act(x)) per head of Dk numbers, in place.
//   L2: x / sqrt(sum x^2 + 1e-6);  SUM: x / sum x;  L1: x / sum |x|
// Gates: beta[t,j] = beta_scale sigmoid(ba[t,j]);  g[t,j] = -e^A_log[j] softplus(ba[t, betas + j] + dt_bias[j])
// qk (T, heads Dk), beta (T, betas), g (T, decays), ba (T, betas + decays). Workgroups (T, heads + 1): one head of one
// token each; the last in y makes the token's gates. Any sizes.
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
#include "reduce.glsl"

void gates(uint t, uint lane) {
  for (uint j = lane; j < args.betas; j += gl_WorkGroupSize.x)
    beta[t * args.beta_stride + j] =
        args.beta_scale * (args.has_beta != 0 ? sigmoid(ba[t * args.ba_stride + j]) : 1.0);
  if (args.gated == 0) return;
  uint from = t * args.ba_stride + (args.has_beta != 0 ? args.betas : 0);
  for (uint j = lane; j < args.decays; j += gl_WorkGroupSize.x)
    g[t * args.g_stride + j] = -exp(A_log[j]) * softplus(ba[from + j] + dt_bias[j]);
}

void head(uint t, uint h, uint lane) {
  uint from = t * args.qk_stride + h * args.Dk;
  float sum = 0.0;
  for (uint d = lane; d < args.Dk; d += gl_WorkGroupSize.x) {
    float x = activate(args.activation, float(qk[from + d]));
    sum += args.norm == NORM_L2 ? x * x : args.norm == NORM_L1 ? abs(x) : x;
  }
  float factor = 1.0;
  if (args.norm != NORM_NONE) {
    sum = workgroup_sum(sum);
    sum = args.norm == NORM_L2 ? sqrt(sum + 1e-6) : sum;
    factor = sum != 0.0 ? 1.0 / sum : 0.0;
  }
  for (uint d = lane; d < args.Dk; d += gl_WorkGroupSize.x)
    qk[from + d] = STORED(activate(args.activation, float(qk[from + d])) * factor);
}

void main() {
  if (gl_WorkGroupID.y == args.heads)
    gates(gl_WorkGroupID.x, gl_LocalInvocationID.x);
  else
    head(gl_WorkGroupID.x, gl_WorkGroupID.y, gl_LocalInvocationID.x);
}
