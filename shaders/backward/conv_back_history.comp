#version 450
#extension GL_GOOGLE_include_directive : require
// history: the gradient of the one after the call, which becomes that of the one before. A call shorter than the
// history leaves some of its rows there, further to the front. Workgroups (ceil(C / lanes), B): an invocation goes
// through the rows of one column from the last to the first.
#include "conv_back.h"
layout(local_size_x_id = CONV_BACK_SPEC_LANES) in;
layout(set = 0, binding = CONV_BACK_D) readonly buffer d_block { float d[]; };
layout(set = 0, binding = CONV_BACK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
layout(set = 0, binding = CONV_BACK_HISTORY) buffer history_block { float history[]; };
layout(set = 0, binding = CONV_BACK_TAPS) readonly buffer weight_block { float weight[]; };

// The gradient of the input of token s, from the d of the tokens that read it. s + W - 1 = from; s < 0.
float conv_ahead(sequence q, uint from, uint c) {
  float sum = 0.0;
  for (uint j = 0; j < args.W; j++) {
    uint t = from - j; // wraps below 0
    if (t < q.T) sum += weight[j * args.weight_stride + c] * d[(q.row + t) * args.C + c];
  }
  return sum;
}

void main() {
  sequence q = sequences[gl_WorkGroupID.y];
  uint c = gl_GlobalInvocationID.x;
  if (c >= args.C || q.T == 0) return;
  uint at = q.slot * args.history_stride + c;
  for (uint i = args.W - 1; i-- > 0;) {
    float kept = i >= q.T ? history[at + (i - q.T) * args.C] : 0.0;
    history[at + i * args.C] = kept + conv_ahead(q, i, c);
  }
}
