#version 450
#extension GL_GOOGLE_include_directive : require
// Workgroups (ceil(C / lanes), tokens of the longest sequence, folded, B): an invocation computes elements of dx.
#include "conv_back.h"
layout(local_size_x_id = CONV_BACK_SPEC_LANES) in;
layout(set = 0, binding = CONV_BACK_D) readonly buffer d_block { float d[]; };
layout(set = 0, binding = CONV_BACK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
layout(set = 0, binding = CONV_BACK_HISTORY) readonly buffer after_block { float after[]; };
layout(set = 0, binding = CONV_BACK_X) buffer dx_block { float dx[]; };
layout(set = 0, binding = CONV_BACK_WEIGHT) readonly buffer weight_block { float weight[]; };
#include "conv_ahead.glsl"

void main() {
  sequence q = sequences[gl_WorkGroupID.z];
  uint c = gl_GlobalInvocationID.x, old = args.W - 1;
  if (c >= args.C) return;
  for (uint t = gl_WorkGroupID.y; t < q.T; t += gl_NumWorkGroups.y) {
    float sum = conv_ahead(q, t + old, c);
    // The last inputs of the call are the history after it.
    if (args.has_history != 0 && t + old >= q.T)
      sum += after[q.slot * args.history_stride + (t + old - q.T) * args.C + c];
    dx[(q.row + t) * args.x_stride + c] += sum;
  }
}
