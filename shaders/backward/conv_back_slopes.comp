#version 450
#extension GL_GOOGLE_include_directive : require
// Workgroups (ceil(C / lanes), tokens of the longest sequence, folded, B): an invocation computes elements of d.
#include "conv_back.h"
#include "slope.glsl"
layout(local_size_x_id = CONV_BACK_SPEC_LANES) in;
layout(set = 0, binding = CONV_BACK_D) writeonly buffer d_block { float d[]; };
layout(set = 0, binding = CONV_BACK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
layout(set = 0, binding = CONV_BACK_HISTORY) readonly buffer history_block { float history[]; };
layout(set = 0, binding = CONV_BACK_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = CONV_BACK_WEIGHT) readonly buffer weight_block { float weight[]; };
layout(set = 0, binding = CONV_BACK_BIAS) readonly buffer bias_block { float bias[]; };
layout(set = 0, binding = CONV_BACK_DY) readonly buffer dy_block { float dy[]; };

void main() {
  sequence q = sequences[gl_WorkGroupID.z];
  uint c = gl_GlobalInvocationID.x, old = args.W - 1;
  if (c >= args.C) return;
  for (uint t = gl_WorkGroupID.y; t < q.T; t += gl_NumWorkGroups.y) {
    float sum = args.has_bias != 0 ? bias[c] : 0.0;
    for (uint j = 0; j < args.W; j++) {
      uint at = t + j; // token at - old; before the call: row `at` of the history
      if (at >= old)
        sum += weight[j * args.weight_stride + c] * x[(q.row + at - old) * args.x_stride + c];
      else if (args.has_history != 0)
        sum += weight[j * args.weight_stride + c] * history[q.slot * args.history_stride + at * args.C + c];
    }
    float by = dy[(q.row + t) * args.dy_stride + c];
    d[(q.row + t) * args.C + c] = c < args.silu_from ? by : by * silu_slope(sum);
  }
}
