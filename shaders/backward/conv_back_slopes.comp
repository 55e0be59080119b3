#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Workgroups (ceil(C / lanes), blocks of CONV_BACK_TOKENS tokens of the longest sequence, B): an invocation goes through
// the tokens of a block in one column, with the last W inputs at hand.
#include "conv_back.h"
#include "slope.glsl"
layout(local_size_x_id = CONV_BACK_SPEC_LANES) in;
layout(constant_id = CONV_BACK_SPEC_W) const uint W = 4;
layout(set = 0, binding = CONV_BACK_D) writeonly buffer d_block { float d[]; };
layout(set = 0, binding = CONV_BACK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
layout(set = 0, binding = CONV_BACK_HISTORY) readonly buffer history_block { float history[]; };
layout(set = 0, binding = CONV_BACK_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = CONV_BACK_WEIGHT) readonly buffer weight_block { float weight[]; };
layout(set = 0, binding = CONV_BACK_BIAS) readonly buffer bias_block { float bias[]; };
layout(set = 0, binding = CONV_BACK_DY) readonly buffer dy_block { float dy[]; };
layout(set = 0, binding = CONV_BACK_PARTS) writeonly buffer parts_block { float parts[]; };

// The input of token at - (W - 1); before the call, row `at` of the history.
float input_at(sequence q, uint at, uint c) {
  if (at >= W - 1) return x[(q.row + at - (W - 1)) * args.x_stride + c];
  return args.has_history != 0 ? history[q.slot * args.history_stride + at * args.C + c] : 0.0;
}

void main() {
  sequence q = sequences[gl_WorkGroupID.z];
  uint c = gl_GlobalInvocationID.x;
  if (c >= args.C) return;
  uint first = gl_WorkGroupID.y * CONV_BACK_TOKENS, end = min(first + CONV_BACK_TOKENS, q.T);
  float taps[W], inputs[W], terms[W], start = args.has_bias != 0 ? bias[c] : 0.0;
  [[unroll]] for (uint j = 0; j < W; j++) {
    taps[j] = weight[j * args.weight_stride + c];
    inputs[j] = j > 0 && first < end ? input_at(q, first + j - 1, c) : 0.0; // they move on before each token
    terms[j] = 0.0;
  }
  for (uint t = first; t < end; t++) {
    [[unroll]] for (uint j = 1; j < W; j++) inputs[j - 1] = inputs[j];
    inputs[W - 1] = input_at(q, t + W - 1, c);
    float sum = start;
    [[unroll]] for (uint j = 0; j < W; j++) sum += taps[j] * inputs[j];
    float by = dy[(q.row + t) * args.dy_stride + c];
    if (c >= args.silu_from) by *= silu_slope(sum);
    d[(q.row + t) * args.C + c] = by;
    [[unroll]] for (uint j = 0; j < W; j++) terms[j] += by * inputs[j];
  }
  if (args.has_parts == 0) return;
  uint part = (gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * W;
  [[unroll]] for (uint j = 0; j < W; j++) parts[(part + j) * args.C + c] = terms[j];
}
