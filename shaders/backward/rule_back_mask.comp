#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// dmask += the parts of dM; where the tensor holds logits z, what they imply: with f a row of f(z), F = 1 / |f| and
// N = F f,  dN = (dM + dM^T) N,  dz = F (dN - N sum dN N) f'(z).
// Workgroups (ceil(Hv / lanes), rows): an invocation computes a head's mask of every gl_NumWorkGroups.y-th token.
#include "rule_back.h"
layout(local_size_x_id = RULE_BACK_SPEC_LANES) in;
layout(constant_id = RULE_BACK_SPEC_R) const uint R = 2;
layout(constant_id = RULE_BACK_SPEC_NONNEG) const uint NONNEG = 0;
layout(set = 0, binding = RULE_BACK_DMASK) buffer dmask_block { float dmask[]; };
layout(set = 0, binding = RULE_BACK_PARTS) readonly buffer parts_block { float parts[]; };
layout(set = 0, binding = RULE_BACK_LOGITS) readonly buffer mask_block { float mask[]; };
#include "hh_mask.glsl"

float dM[R * R]; // no argument: glslang copies arrays of a specialized size by their default size

// The slope of the function that makes logits non-negative.
float slope(float z) {
  if (NONNEG == HH_EXP) return accurate_exp(z);
  return NONNEG == HH_SOFTPLUS ? sigmoid(z) : sigmoid(z) * (1.0 - sigmoid(z));
}

void logits_back(uint to, uint from) {
  for (uint a = 0; a < R; a++) {
    float N[R], other[R], dN[R], dots = 0.0, top = 0.0, squares = 0.0;
    mask_row(from + a * R, N);
    for (uint i = 0; i < R; i++) dN[i] = 0.0;
    for (uint b = 0; b < R; b++) {
      mask_row(from + b * R, other);
      for (uint i = 0; i < R; i++) dN[i] += (dM[a * R + b] + dM[b * R + a]) * other[i];
    }
    for (uint i = 0; i < R; i++) {
      dots += dN[i] * N[i];
      if (NONNEG == HH_EXP) top = max(top, mask[from + a * R + i]);
    }
    for (uint i = 0; i < R; i++) {
      float f = nonneg(mask[from + a * R + i] - top);
      squares += f * f;
    }
    float factor = accurate_inversesqrt(squares + 1e-6 * accurate_exp(-2.0 * top));
    for (uint i = 0; i < R; i++)
      dmask[to + a * R + i] += factor * (dN[i] - N[i] * dots) * slope(mask[from + a * R + i] - top);
  }
}

void main() {
  uint h = gl_GlobalInvocationID.x;
  if (h >= args.Hv) return;
  const uint values = args.n * args.Dv, of_block = (args.part - values) / args.blocks;
  for (uint t = gl_WorkGroupID.y; t < args.T; t += gl_NumWorkGroups.y) {
    uint from = (t * args.Hv + h) * args.part + values + of_block - R * R, to = t * args.mask_stride + h * R * R;
    for (uint i = 0; i < R * R; i++) {
      dM[i] = 0.0;
      for (uint b = 0; b < args.blocks; b++) dM[i] += parts[from + b * of_block + i];
      if (NONNEG == HH_GIVEN) dmask[to + i] += dM[i];
    }
    if (NONNEG != HH_GIVEN) logits_back(to, t * args.logits_stride + h * R * R);
  }
}
