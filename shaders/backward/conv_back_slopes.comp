#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Workgroups (ceil(C / lanes), blocks of CONV_BACK_TOKENS tokens of the longest sequence, B), C in units: an invocation
// goes through the tokens of a block in one unit, with the last W inputs at hand and the next token's under way.
#include "conv_back.h"
#include "slope.glsl"
layout(local_size_x_id = CONV_BACK_SPEC_LANES) in;
layout(constant_id = CONV_BACK_SPEC_W) const uint W = 4;
layout(constant_id = CONV_BACK_SPEC_ALIGNED) const uint ALIGNED = 0;
#include "units.glsl"
UNITS(restrict writeonly, CONV_BACK_D, d)
layout(set = 0, binding = CONV_BACK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
UNITS(readonly, CONV_BACK_HISTORY, history)
UNITS(readonly, CONV_BACK_X, x)
UNITS(readonly, CONV_BACK_WEIGHT, weight)
UNITS(readonly, CONV_BACK_BIAS, bias)
UNITS(readonly, CONV_BACK_DY, dy)
UNITS(restrict writeonly, CONV_BACK_PARTS, parts)

// The input of token at - (W - 1); before the call, row `at` of the history.
vec4 input_at(sequence q, uint at, uint c) {
  if (at >= W - 1) return LOAD(x, (q.row + at - (W - 1)) * args.x_stride / UNIT + c);
  if (args.has_history == 0) return vec4(0.0);
  return LOAD(history, (q.slot * args.history_stride + at * args.C) / UNIT + c);
}

vec4 dy_at(sequence q, uint t, uint c) { return LOAD(dy, (q.row + t) * args.dy_stride / UNIT + c); }

void main() {
  sequence q = sequences[gl_WorkGroupID.z];
  uint c = gl_GlobalInvocationID.x;
  if (c >= args.C / UNIT) return;
  uint first = gl_WorkGroupID.y * CONV_BACK_TOKENS, end = min(first + CONV_BACK_TOKENS, q.T);
  vec4 taps[W], inputs[W], terms[W], start = vec4(0.0), next = vec4(0.0), next_dy = vec4(0.0);
  if (args.has_bias != 0) start = LOAD(bias, c);
  [[unroll]] for (uint j = 0; j < W; j++) {
    taps[j] = LOAD(weight, j * args.weight_stride / UNIT + c);
    inputs[j] = vec4(0.0);
    if (j > 0 && first < end) inputs[j] = input_at(q, first + j - 1, c); // they move on before each token
    terms[j] = vec4(0.0);
  }
  if (first < end) {
    next = input_at(q, first + W - 1, c);
    next_dy = dy_at(q, first, c);
  }
  for (uint t = first; t < end; t++) {
    [[unroll]] for (uint j = 1; j < W; j++) inputs[j - 1] = inputs[j];
    inputs[W - 1] = next;
    vec4 by = next_dy, sum = start;
    uint after = min(t + 1, end - 1);
    next = input_at(q, after + W - 1, c);
    next_dy = dy_at(q, after, c);
    [[unroll]] for (uint j = 0; j < W; j++) sum += taps[j] * inputs[j];
    [[unroll]] for (uint k = 0; k < UNIT; k++)
      if (c * UNIT + k >= args.silu_from) by[k] *= silu_slope(sum[k]);
    STORE(d, (q.row + t) * args.C / UNIT + c, by)
    [[unroll]] for (uint j = 0; j < W; j++) terms[j] += by * inputs[j];
  }
  if (args.has_parts == 0) return;
  uint part = (gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * W;
  [[unroll]] for (uint j = 0; j < W; j++) STORE(parts, (part + j) * args.C / UNIT + c, terms[j])
}
