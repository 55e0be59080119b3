#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Workgroups (ceil(Hv / lanes), rows): an invocation computes the gates of one head of every gl_NumWorkGroups.y-th
// token.
#include "rule_back.h"
layout(local_size_x_id = RULE_BACK_SPEC_LANES) in;
layout(constant_id = RULE_BACK_SPEC_R) const uint R = 1;
layout(constant_id = RULE_BACK_SPEC_NONNEG) const uint NONNEG = 0;
layout(set = 0, binding = RULE_BACK_GATES) writeonly buffer gates_block { float gates[]; };
layout(set = 0, binding = RULE_BACK_BETA) readonly buffer beta_block { float beta[]; };
layout(set = 0, binding = RULE_BACK_G) readonly buffer g_block { float g[]; };
layout(set = 0, binding = RULE_BACK_MASK) readonly buffer mask_block { float mask[]; };
#include "hh_mask.glsl"

void write_mask(uint to, uint from) {
  if (NONNEG == HH_GIVEN) {
    for (uint i = 0; i < R * R; i++) gates[to + i] = mask[from + i];
    return;
  }
  for (uint a = 0; a < R; a++) {
    float mine[R], other[R];
    mask_row(from + a * R, mine);
    for (uint b = 0; b < R; b++) {
      mask_row(from + b * R, other);
      float sum = 0.0;
      for (uint c = 0; c < R; c++) sum += mine[c] * other[c];
      gates[to + a * R + b] = sum;
    }
  }
}

void main() {
  uint h = gl_GlobalInvocationID.x, size = args.n + 1 + (R > 1 ? R * R : 0);
  if (h >= args.Hv) return;
  for (uint t = gl_WorkGroupID.y; t < args.T; t += gl_NumWorkGroups.y) {
    uint to = (t * args.Hv + h) * size;
    for (uint m = 0; m < args.n; m++) gates[to + m] = beta[t * args.beta_stride + m * args.Hv + h];
    gates[to + args.n] = args.gated != 0 ? accurate_exp(g[t * args.g_stride + h]) : 1.0;
    if (R > 1) write_mask(to + args.n + 1, (args.fixed_mask != 0 ? 0 : t * args.mask_stride) + h * R * R);
  }
}
