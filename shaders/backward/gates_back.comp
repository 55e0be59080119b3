#version 450
#extension GL_GOOGLE_include_directive : require
// beta = beta_scale sigmoid(raw),        draw += dbeta beta (1 - beta / beta_scale)
// g = -e^A_log softplus(raw + dt_bias),  draw += -e^A_log sigmoid(raw + dt_bias) dg,  dA_log = sum dg g
// Mamba-2: dt = clamp(softplus(raw + dt_bias)), g = -e^A_log dt; nothing passes where dt is clamped.
// Workgroups (ceil(columns of raw / lanes), rows): an invocation takes every gl_NumWorkGroups.y-th row.
#include "activation.glsl"
#include "gates_back.h"
layout(local_size_x_id = GATES_BACK_SPEC_LANES) in;
layout(constant_id = GATES_BACK_SPEC_MAMBA2) const uint MAMBA2 = 0;
layout(set = 0, binding = GATES_BACK_RAW) readonly buffer raw_block { float raw[]; };
layout(set = 0, binding = GATES_BACK_A_LOG) readonly buffer A_log_block { float A_log[]; };
layout(set = 0, binding = GATES_BACK_DT_BIAS) readonly buffer dt_bias_block { float dt_bias[]; };
layout(set = 0, binding = GATES_BACK_DBETA) readonly buffer dbeta_block { float dbeta[]; };
layout(set = 0, binding = GATES_BACK_DG) readonly buffer dg_block { float dg[]; };
layout(set = 0, binding = GATES_BACK_DRAW) buffer draw_block { float draw[]; };
layout(set = 0, binding = GATES_BACK_PARTS) writeonly buffer parts_block { float parts[]; };

void beta_back(uint t, uint j) {
  float s = sigmoid(raw[t * args.raw_stride + j]);
  draw[t * args.draw_stride + j] += dbeta[t * args.dbeta_stride + j] * args.beta_scale * s * (1.0 - s);
}

void decay_back(uint t, uint j) {
  float z = raw[t * args.raw_stride + args.betas + j] + dt_bias[j], A = accurate_exp(A_log[j]);
  float soft = softplus(z), by = dg[t * args.dg_stride + j], d = -A * by, dt = soft;
  if (MAMBA2 != 0) {
    dt = clamp(soft, args.low, args.high);
    d += dbeta[t * args.dbeta_stride + j];
    if (soft < args.low || soft > args.high) d = 0.0;
  }
  d *= sigmoid(z);
  draw[t * args.draw_stride + args.betas + j] += d;
  parts[t * 2 * args.decays + j] = by * -A * dt;
  parts[t * 2 * args.decays + args.decays + j] = d;
}

void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i >= args.betas + args.decays) return;
  for (uint t = gl_WorkGroupID.y; t < args.T; t += gl_NumWorkGroups.y) {
    if (i < args.betas)
      beta_back(t, i);
    else
      decay_back(t, i - args.betas);
  }
}
