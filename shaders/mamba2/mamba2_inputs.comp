#version 450
#extension GL_GOOGLE_include_directive : require
// dt[t,j] = clamp(softplus(raw[t,j] + dt_bias[j]), low, high);  g[t,j] = -e^A_log[j] dt[t,j]
// dt, g, raw (T, heads). Workgroups (ceil(heads / lanes), T). Any sizes.
#include "mamba2_inputs.h"
layout(local_size_x_id = MAMBA2_INPUTS_SPEC_LANES) in;
layout(set = 0, binding = MAMBA2_INPUTS_DT) writeonly buffer dt_block { float dt[]; };
layout(set = 0, binding = MAMBA2_INPUTS_G) writeonly buffer g_block { float g[]; };
layout(set = 0, binding = MAMBA2_INPUTS_RAW) readonly buffer raw_block { float raw[]; };
layout(set = 0, binding = MAMBA2_INPUTS_A_LOG) readonly buffer a_log_block { float A_log[]; };
layout(set = 0, binding = MAMBA2_INPUTS_DT_BIAS) readonly buffer dt_bias_block { float dt_bias[]; };
#include "activation.glsl"

void main() {
  uint t = gl_WorkGroupID.y, j = gl_GlobalInvocationID.x;
  if (j >= args.heads) return;
  float size = min(max(softplus(raw[t * args.raw_stride + j] + dt_bias[j]), args.low), args.high);
  dt[t * args.dt_stride + j] = size;
  g[t * args.g_stride + j] = -accurate_exp(A_log[j]) * size;
}
