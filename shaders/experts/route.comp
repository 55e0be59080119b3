#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// The k largest of a token's E logits, largest first, the lower index among equals; their softmax over all E, or over
// the k when normalized. NaNs are never larger, so that ids are valid whatever the logits are.
// Workgroups (T): the first subgroup computes one token. Each of its invocations owns every width-th logit, so that no
// invocation reads what another one writes.
#include "route.h"
layout(local_size_x_id = ROUTE_SPEC_LANES) in;
layout(constant_id = ROUTE_SPEC_EXPERTS) const uint EXPERTS = 8;
layout(set = 0, binding = ROUTE_IDS) writeonly buffer ids_block { int ids[]; };
layout(set = 0, binding = ROUTE_WEIGHTS) buffer weights_block { float weights[]; };
layout(set = 0, binding = ROUTE_LOGITS) readonly buffer logits_block { float logits[]; };
#include "accurate.glsl"
const uint BATCH = 8; // logits that an invocation loads at once
shared float score[EXPERTS]; // the logits
shared bool taken[EXPERTS];

void main() {
  if (gl_SubgroupID != 0) return;
  // Not every device fills a subgroup: only active invocations count.
  const uint lane = subgroupExclusiveAdd(1u), width = subgroupAdd(1u);
  for (uint t = gl_WorkGroupID.x; t < args.T; t += gl_NumWorkGroups.x) {
    float top = 0.0, all = 0.0, chosen = 0.0;
    for (uint first = lane; first < EXPERTS; first += BATCH * width) {
      float read[BATCH];
      [[unroll]] for (uint b = 0; b < BATCH; b++)
        read[b] = logits[t * args.logits_stride + min(first + b * width, EXPERTS - 1)];
      [[unroll]] for (uint b = 0; b < BATCH; b++)
        if (first + b * width < EXPERTS) {
          score[first + b * width] = read[b];
          taken[first + b * width] = false;
        }
    }
    for (uint j = 0; j < args.k; j++) {
      uint best = EXPERTS;
      for (uint e = lane; e < EXPERTS; e += width)
        if (!taken[e] && (best == EXPERTS || score[e] > score[best])) best = e;
      // Invocations without a candidate take no part.
      float value = best < EXPERTS && score[best] > -3.402823466e38 ? score[best] : -3.402823466e38;
      float most = subgroupMax(value);
      uint winner = subgroupMin(best < EXPERTS && !(value < most) ? best : EXPERTS);
      if (winner == best && best < EXPERTS) taken[best] = true;
      if (j == 0) {
        top = most;
        for (uint e = lane; e < EXPERTS; e += width) all += accurate_exp(score[e] - top);
        all = subgroupAdd(all);
      }
      float weight = accurate_exp(most - top);
      chosen += weight;
      if (lane == j % width) {
        ids[t * args.ids_stride + j] = int(min(winner, EXPERTS - 1));
        weights[t * args.weights_stride + j] = weight;
      }
    }
    float sum = args.normalized != 0 ? chosen : all;
    for (uint j = lane; j < args.k; j += width) weights[t * args.weights_stride + j] /= sum; // it wrote these
  }
}
