#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Workgroups (ceil(C / lanes), blocks of CONV_BACK_TOKENS tokens of the longest sequence, B): an invocation goes through
// the tokens of a block in one column, with the d of W tokens at hand: the token's own, and those of the ones after it.
#include "conv_back.h"
layout(local_size_x_id = CONV_BACK_SPEC_LANES) in;
layout(constant_id = CONV_BACK_SPEC_W) const uint W = 4;
layout(set = 0, binding = CONV_BACK_D) readonly buffer d_block { float d[]; };
layout(set = 0, binding = CONV_BACK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
layout(set = 0, binding = CONV_BACK_HISTORY) readonly buffer after_block { float after[]; };
layout(set = 0, binding = CONV_BACK_X) buffer dx_block { float dx[]; };
layout(set = 0, binding = CONV_BACK_WEIGHT) readonly buffer weight_block { float weight[]; };

float d_at(sequence q, uint t, uint c) { return t < q.T ? d[(q.row + t) * args.C + c] : 0.0; }

void main() {
  sequence q = sequences[gl_WorkGroupID.z];
  uint c = gl_GlobalInvocationID.x;
  if (c >= args.C) return;
  uint first = gl_WorkGroupID.y * CONV_BACK_TOKENS, end = min(first + CONV_BACK_TOKENS, q.T);
  float taps[W], ahead[W];
  [[unroll]] for (uint j = 0; j < W; j++) {
    taps[j] = weight[j * args.weight_stride + c];
    ahead[j] = j > 0 ? d_at(q, first + j - 1, c) : 0.0; // they move on before each token
  }
  for (uint t = first; t < end; t++) {
    [[unroll]] for (uint j = 1; j < W; j++) ahead[j - 1] = ahead[j];
    ahead[W - 1] = d_at(q, t + W - 1, c);
    float sum = 0.0;
    [[unroll]] for (uint j = 0; j < W; j++) sum += taps[j] * ahead[W - 1 - j];
    // The last inputs of the call are the history after it.
    if (args.has_history != 0 && t + W - 1 >= q.T)
      sum += after[q.slot * args.history_stride + (t + W - 1 - q.T) * args.C + c];
    uint to = (q.row + t) * args.x_stride + c;
    dx[to] = (args.add != 0 ? dx[to] : 0.0) + sum;
  }
}
