#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// The k largest of a token's E logits, largest first, the lower index among equals; their softmax over all E, or over
// the k when normalized. A logit's place is the number of logits that come before it, so no choice waits for another.
// NaNs are never larger, so that ids are valid whatever the logits are.
// Workgroups (T): a token at a time. Any E, k <= E.
#include "route.h"
layout(local_size_x_id = ROUTE_SPEC_LANES) in;
layout(constant_id = ROUTE_SPEC_EXPERTS) const uint EXPERTS = 8;
layout(constant_id = ROUTE_SPEC_BATCH) const uint BATCH = 1;
layout(set = 0, binding = ROUTE_IDS) writeonly buffer ids_block { int ids[]; };
layout(set = 0, binding = ROUTE_WEIGHTS) writeonly buffer weights_block { float weights[]; };
layout(set = 0, binding = ROUTE_LOGITS) readonly buffer logits_block { float logits[]; };
#include "accurate.glsl"
#include "reduce.glsl"
const uint LANES = gl_WorkGroupSize.x, FOURS = (EXPERTS + 4 * BATCH - 1) / (4 * BATCH) * BATCH;
const float LOWEST = -3.402823466e38;
shared vec4 scores[FOURS]; // the logits without NaNs and infinities, then LOWEST
shared float chosen[EXPERTS];

float score(float logit) { return logit > LOWEST ? min(logit, -LOWEST) : LOWEST; }

// The scores before that of expert e: larger ones, and equal ones of a lower index.
uint place(uint e) {
  const float own = scores[e / 4][e % 4];
  uint before = 0;
  for (uint i0 = 0; i0 < FOURS; i0 += BATCH) {
    vec4 other[BATCH];
    [[unroll]] for (uint b = 0; b < BATCH; b++) other[b] = scores[i0 + b];
    [[unroll]] for (uint j = 0; j < 4 * BATCH; j++)
      before += other[j / 4][j % 4] > own || (other[j / 4][j % 4] == own && 4 * i0 + j < e) ? 1 : 0;
  }
  return before;
}

void main() {
  const uint lane = gl_LocalInvocationID.x;
  for (uint t = gl_WorkGroupID.x; t < args.T; t += gl_NumWorkGroups.x) {
    const uint from = t * args.logits_stride;
    for (uint e = lane; e < 4 * FOURS; e += LANES)
      scores[e / 4][e % 4] = e < EXPERTS ? score(logits[from + e]) : LOWEST;
    barrier();
    for (uint e = lane; e < EXPERTS; e += LANES) {
      const uint j = place(e);
      if (j >= args.k) continue;
      ids[t * args.ids_stride + j] = int(e);
      chosen[j] = logits[from + e];
    }
    barrier();
    float sum = 0.0;
    if (args.normalized != 0)
      for (uint j = lane; j < args.k; j += LANES) sum += accurate_exp(chosen[j] - chosen[0]);
    else
      for (uint e = lane; e < EXPERTS; e += LANES) sum += accurate_exp(logits[from + e] - chosen[0]);
    sum = workgroup_sum(sum);
    for (uint j = lane; j < args.k; j += LANES)
      weights[t * args.weights_stride + j] = accurate_exp(chosen[j] - chosen[0]) / sum;
    barrier(); // the next token overwrites the scores and the choices
  }
}
