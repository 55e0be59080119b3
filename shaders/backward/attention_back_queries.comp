#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// With s_j = scale q k_j over the positions that a query sees, P = softmax(s), delta = sum P_j (do v_j):
//   dS_j = scale P_j (do v_j - delta),  dq = sum dS_j k_j
// Workgroups (queries of the longest sequence, heads, B): one query each. Invocations take keys for the scores, and
// elements of dq for the sum over a tile of keys.
#include "attention_back.h"
layout(local_size_x_id = ATTENTION_BACK_SPEC_LANES) in;
layout(set = 0, binding = ATTENTION_BACK_QKV) readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = ATTENTION_BACK_DO) readonly buffer do_block { float d_o[]; };
layout(set = 0, binding = ATTENTION_BACK_DQKV) buffer dqkv_block { float dqkv[]; };
layout(set = 0, binding = ATTENTION_BACK_SUMS) writeonly buffer sums_block { float sums[]; };
layout(set = 0, binding = ATTENTION_BACK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
#include "accurate.glsl"
#include "reduce.glsl"

shared float dS[gl_WorkGroupSize.x];

void main() {
  sequence q = sequences[gl_WorkGroupID.z];
  uint i = gl_WorkGroupID.x, h = gl_WorkGroupID.y, lane = gl_LocalInvocationID.x, d = args.d;
  if (i >= q.T) return;
  uint query = (q.row + i) * args.qkv_stride + h * d, by = (q.row + i) * args.do_stride + h * d;
  uint k_at = (args.heads + h / (args.heads / args.kv_heads)) * d, v_at = k_at + args.kv_heads * d;
  uint first = args.window != 0 && i + 1 > args.window ? i + 1 - args.window : 0;
  float most = -1e38, sum = 0.0, weighted = 0.0; // of this invocation's keys
  for (uint j = first + lane; j <= i; j += gl_WorkGroupSize.x) {
    uint row = (q.row + j) * args.qkv_stride;
    float s = 0.0, dP = 0.0;
    for (uint x = 0; x < d; x++) {
      s += qkv[query + x] * qkv[row + k_at + x];
      dP += d_o[by + x] * qkv[row + v_at + x];
    }
    s *= args.scale;
    float top = max(most, s), before = accurate_exp(most - top), now = accurate_exp(s - top);
    sum = sum * before + now;
    weighted = weighted * before + now * dP;
    most = top;
  }
  float top = workgroup_max(most), factor = accurate_exp(most - top);
  float inverse = 1.0 / workgroup_sum(sum * factor);
  float delta = workgroup_sum(weighted * factor) * inverse;
  if (lane == 0) {
    uint at = 3 * ((q.row + i) * args.heads + h);
    sums[at] = top;
    sums[at + 1] = inverse;
    sums[at + 2] = delta;
  }
  uint to = (q.row + i) * args.dqkv_stride + h * d;
  for (uint tile = first; tile <= i; tile += gl_WorkGroupSize.x) {
    uint j = tile + lane, count = min(i + 1 - tile, gl_WorkGroupSize.x);
    if (j <= i) {
      uint row = (q.row + j) * args.qkv_stride;
      float s = 0.0, dP = 0.0;
      for (uint x = 0; x < d; x++) {
        s += qkv[query + x] * qkv[row + k_at + x];
        dP += d_o[by + x] * qkv[row + v_at + x];
      }
      dS[lane] = args.scale * accurate_exp(args.scale * s - top) * inverse * (dP - delta);
    }
    barrier();
    for (uint x = lane; x < d; x += gl_WorkGroupSize.x) {
      float dq = 0.0;
      for (uint k = 0; k < count; k++) dq += dS[k] * qkv[(q.row + tile + k) * args.qkv_stride + k_at + x];
      dqkv[to + x] += dq;
    }
    barrier();
  }
}
