#version 450
#extension GL_GOOGLE_include_directive : require
// Sets bit tokens[t] of its sequence's row of `seen`.
// seen (slots, ceil(V / 32)), tokens (T). Workgroups (ceil(T / lanes), 1, B): an invocation marks one token.
#include "mark.h"
layout(local_size_x_id = MARK_SPEC_LANES) in;
layout(set = 0, binding = MARK_SEEN) buffer seen_block { uint seen[]; };
layout(set = 0, binding = MARK_TOKENS) readonly buffer tokens_block { uint tokens[]; };
layout(set = 0, binding = MARK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };

void main() {
  sequence s = sequences[gl_WorkGroupID.z];
  uint t = gl_GlobalInvocationID.x;
  if (t >= s.T) return;
  uint token = tokens[s.row + t];
  atomicOr(seen[s.slot * args.seen_stride + token / 32], 1u << (token % 32));
}
