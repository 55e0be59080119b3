#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// With z the logits of row t and j its target: log p = z_j - max z - log sum_i e^(z_i - max z), and whether j is the
// lowest id with the largest z. scores (T, 2), logits (n, V), targets (T). Rows first ... first + n - 1 belong to the
// logits; a target below 0 means none. Workgroups (n): one row each. Any V.
#include "score.h"
layout(local_size_x_id = SCORE_SPEC_LANES) in;
layout(set = 0, binding = SCORE_SCORES) writeonly buffer scores_block { float scores[]; };
layout(set = 0, binding = SCORE_LOGITS) readonly buffer logits_block { float logits[]; };
layout(set = 0, binding = SCORE_TARGETS) readonly buffer targets_block { int targets[]; };
#include "reduce.glsl"

void main() {
  uint t = args.first + gl_WorkGroupID.x, lane = gl_LocalInvocationID.x, from = gl_WorkGroupID.x * args.logits_stride;
  if (targets[t] < 0) return;
  uint target = uint(targets[t]);
  float most = logits[from];
  for (uint i = lane; i < args.V; i += gl_WorkGroupSize.x) most = max(most, logits[from + i]);
  most = workgroup_max(most);
  float sum = 0.0, before = 0.0;
  for (uint i = lane; i < args.V; i += gl_WorkGroupSize.x) {
    float z = logits[from + i];
    sum += exp(z - most);
    if (i < target && z == most) before = 1.0;
  }
  sum = workgroup_sum(sum);
  before = workgroup_max(before);
  if (lane == 0) {
    float z = logits[from + target];
    scores[2 * t] = (z - most) - log(sum);
    scores[2 * t + 1] = z == most && before == 0.0 ? 1.0 : 0.0;
  }
}
