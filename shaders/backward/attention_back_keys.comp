#version 450
#extension GL_GOOGLE_include_directive : require
// dk_j = sum dS_j q,  dv_j = sum P_j do, over the queries that see position j and the heads that share its key
// (attention_back_queries.comp has dS and P). Workgroups (keys of the longest sequence, kv_heads, B): one key each.
// Invocations take queries for the scores, and elements of dk and dv for the sums over a tile of queries.
#include "attention_back.h"
layout(local_size_x_id = ATTENTION_BACK_SPEC_LANES) in;
layout(set = 0, binding = ATTENTION_BACK_QKV) readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = ATTENTION_BACK_DO) readonly buffer do_block { float d_o[]; };
layout(set = 0, binding = ATTENTION_BACK_DQKV) buffer dqkv_block { float dqkv[]; };
layout(set = 0, binding = ATTENTION_BACK_SUMS) readonly buffer sums_block { float sums[]; };
layout(set = 0, binding = ATTENTION_BACK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
#include "accurate.glsl"

shared float dS[gl_WorkGroupSize.x], P[gl_WorkGroupSize.x];

void main() {
  sequence q = sequences[gl_WorkGroupID.z];
  uint j = gl_WorkGroupID.x, kv = gl_WorkGroupID.y, lane = gl_LocalInvocationID.x, d = args.d;
  if (j >= q.T) return;
  uint k_at = (args.heads + kv) * d, v_at = k_at + args.kv_heads * d, group = args.heads / args.kv_heads;
  uint key = (q.row + j) * args.qkv_stride + k_at, val = (q.row + j) * args.qkv_stride + v_at;
  uint to = (q.row + j) * args.dqkv_stride;
  uint end = args.window != 0 && args.window < q.T - j ? j + args.window : q.T;
  for (uint h = kv * group; h < (kv + 1) * group; h++)
    for (uint tile = j; tile < end; tile += gl_WorkGroupSize.x) {
      uint i = tile + lane, count = min(end - tile, gl_WorkGroupSize.x);
      if (i < end) {
        uint query = (q.row + i) * args.qkv_stride + h * d, by = (q.row + i) * args.do_stride + h * d;
        uint at = 3 * ((q.row + i) * args.heads + h);
        float s = 0.0, dP = 0.0;
        for (uint x = 0; x < d; x++) {
          s += qkv[query + x] * qkv[key + x];
          dP += d_o[by + x] * qkv[val + x];
        }
        P[lane] = accurate_exp(args.scale * s - sums[at]) * sums[at + 1];
        dS[lane] = args.scale * P[lane] * (dP - sums[at + 2]);
      }
      barrier();
      for (uint x = lane; x < d; x += gl_WorkGroupSize.x) {
        float dk = 0.0, dv = 0.0;
        for (uint k = 0; k < count; k++) {
          dk += dS[k] * qkv[(q.row + tile + k) * args.qkv_stride + h * d + x];
          dv += P[k] * d_o[(q.row + tile + k) * args.do_stride + h * d + x];
        }
        dqkv[to + k_at + x] += dk;
        dqkv[to + v_at + x] += dv;
      }
      barrier();
    }
}
