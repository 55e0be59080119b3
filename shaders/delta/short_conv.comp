#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// y[t,c] = act( sum_{w<W} weight[w,c] x[t - (W-1) + w, c] + bias[c] ). x before the call comes from history, which then
// becomes the last W - 1 inputs. y, x (T, C), weight (W, C), history (slots, (W-1) C). Workgroups (ceil(C / lanes),
// ceil(T / RUN), B): an invocation moves along RUN >= W - 1 tokens of one channel with the window in registers. Only
// run 0 reads history, so run 0 can also replace it. Any C, W >= 1, T.
#include "stored.glsl"
#include "short_conv.h"
layout(local_size_x_id = SHORT_CONV_SPEC_LANES) in;
layout(constant_id = SHORT_CONV_SPEC_W) const uint W = 4;
layout(constant_id = SHORT_CONV_SPEC_RUN) const uint RUN = 8;
layout(set = 0, binding = SHORT_CONV_Y) writeonly buffer y_block { stored y[]; };
layout(set = 0, binding = SHORT_CONV_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = SHORT_CONV_WEIGHT) readonly buffer weight_block { float weight[]; };
layout(set = 0, binding = SHORT_CONV_BIAS) readonly buffer bias_block { float bias[]; };
layout(set = 0, binding = SHORT_CONV_HISTORY) buffer history_block { float history[]; };
layout(set = 0, binding = SHORT_CONV_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
#include "activation.glsl"
#include "conv_history.glsl"

void main() {
  sequence s = sequences[gl_WorkGroupID.z];
  uint c = gl_GlobalInvocationID.x;
  uint first = gl_WorkGroupID.y * RUN;
  if (c >= args.C || first >= s.T) return;

  float taps[W], window[W]; // window[w] is input t - (W - 1) + w
  [[unroll]] for (uint w = 0; w < W; w++) taps[w] = weight[w * args.weight_stride + c];
  [[unroll]] for (uint w = 1; w < W; w++) window[w] = past(s, int(first) - int(W) + int(w), c);
  float start = args.has_bias != 0 ? bias[c] : 0.0;
  uint to = c + min(c / args.Dk, args.keys) * (args.pitch - args.Dk); // column of y

  for (uint t = first; t < min(first + RUN, s.T); t++) {
    [[unroll]] for (uint w = 0; w + 1 < W; w++) window[w] = window[w + 1];
    window[W - 1] = x[(s.row + t) * args.x_stride + c];
    float sum = start;
    [[unroll]] for (uint w = 0; w < W; w++) sum += taps[w] * window[w];
    y[(s.row + t) * args.y_stride + to] = STORED(c >= args.silu_from ? silu(sum) : sum);
  }

  if (first == 0) keep_history(s, c);
}
