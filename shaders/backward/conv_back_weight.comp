#version 450
#extension GL_GOOGLE_include_directive : require
// dweight[j] += sum over all tokens of d_t x_{t - (W - 1) + j}. Workgroups (ceil(C / CONV_BACK_COLUMNS), W):
// invocations of one column take every n-th token; one of them adds their sums in order.
#include "conv_back.h"
layout(local_size_x_id = CONV_BACK_SPEC_LANES) in;
layout(set = 0, binding = CONV_BACK_D) readonly buffer d_block { float d[]; };
layout(set = 0, binding = CONV_BACK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
layout(set = 0, binding = CONV_BACK_HISTORY) readonly buffer history_block { float history[]; };
layout(set = 0, binding = CONV_BACK_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = CONV_BACK_WEIGHT) buffer dweight_block { float dweight[]; };

shared float parts[gl_WorkGroupSize.x];

void main() {
  uint lane = gl_LocalInvocationID.x, j = gl_WorkGroupID.y, old = args.W - 1;
  uint c = gl_WorkGroupID.x * CONV_BACK_COLUMNS + lane % CONV_BACK_COLUMNS;
  float sum = 0.0;
  for (uint s = 0; s < args.B && c < args.C; s++) {
    sequence q = sequences[s];
    for (uint t = lane / CONV_BACK_COLUMNS; t < q.T; t += gl_WorkGroupSize.x / CONV_BACK_COLUMNS) {
      float by = d[(q.row + t) * args.C + c];
      if (t + j >= old)
        sum += by * x[(q.row + t + j - old) * args.x_stride + c];
      else if (args.has_history != 0)
        sum += by * history[q.slot * args.history_stride + (t + j) * args.C + c];
    }
  }
  parts[lane] = sum;
  barrier();
  if (lane >= CONV_BACK_COLUMNS || c >= args.C) return;
  sum = 0.0;
  for (uint i = lane; i < gl_WorkGroupSize.x; i += CONV_BACK_COLUMNS) sum += parts[i];
  dweight[j * args.weight_stride + c] += sum;
}
