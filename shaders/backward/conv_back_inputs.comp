#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Workgroups (ceil(C / lanes), blocks of CONV_BACK_TOKENS tokens of the longest sequence, B), C in units: an invocation
// goes through the tokens of a block in one unit, with the d of W tokens at hand: the token's own, and those of the ones
// after it; and the next one's under way.
#include "conv_back.h"
layout(local_size_x_id = CONV_BACK_SPEC_LANES) in;
layout(constant_id = CONV_BACK_SPEC_W) const uint W = 4;
layout(constant_id = CONV_BACK_SPEC_ALIGNED) const uint ALIGNED = 0;
#include "units.glsl"
UNITS(readonly, CONV_BACK_D, d)
layout(set = 0, binding = CONV_BACK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
UNITS(readonly, CONV_BACK_HISTORY, after)
UNITS(restrict, CONV_BACK_X, dx)
UNITS(readonly, CONV_BACK_WEIGHT, weight)

vec4 d_at(sequence q, uint t, uint c) {
  vec4 v = LOAD(d, (q.row + min(t, q.T - 1)) * args.C / UNIT + c);
  return t < q.T ? v : vec4(0.0);
}

vec4 old_at(sequence q, uint t, uint c) {
  if (args.add == 0) return vec4(0.0);
  return LOAD(dx, (q.row + t) * args.x_stride / UNIT + c);
}

void main() {
  sequence q = sequences[gl_WorkGroupID.z];
  uint c = gl_GlobalInvocationID.x, first = gl_WorkGroupID.y * CONV_BACK_TOKENS;
  uint end = min(first + CONV_BACK_TOKENS, q.T);
  if (c >= args.C / UNIT || first >= end) return;
  vec4 taps[W], ahead[W];
  [[unroll]] for (uint j = 0; j < W; j++) {
    taps[j] = LOAD(weight, j * args.weight_stride / UNIT + c);
    ahead[j] = vec4(0.0);
    if (j > 0) ahead[j] = d_at(q, first + j - 1, c); // they move on before each token
  }
  vec4 next = d_at(q, first + W - 1, c), next_old = old_at(q, first, c);
  for (uint t = first; t < end; t++) {
    [[unroll]] for (uint j = 1; j < W; j++) ahead[j - 1] = ahead[j];
    ahead[W - 1] = next;
    vec4 old = next_old, sum = vec4(0.0);
    next = d_at(q, t + W, c);
    next_old = old_at(q, min(t + 1, end - 1), c);
    [[unroll]] for (uint j = 0; j < W; j++) sum += taps[j] * ahead[W - 1 - j];
    // The last inputs of the call are the history after it.
    if (args.has_history != 0 && t + W - 1 >= q.T)
      sum += LOAD(after, (q.slot * args.history_stride + (t + W - 1 - q.T) * args.C) / UNIT + c);
    STORE(dx, (q.row + t) * args.x_stride / UNIT + c, old + sum)
  }
}
