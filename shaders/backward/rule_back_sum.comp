#version 450
#extension GL_GOOGLE_include_directive : require
// Adds the parts of every gradient in the order of value heads and blocks of columns. Workgroups (ceil(elements of a
// token / lanes), rows): an invocation adds one element of every gl_NumWorkGroups.y-th token. A token's elements: q, k
// and v, dbeta, dg.
#include "rule_back.h"
layout(local_size_x_id = RULE_BACK_SPEC_LANES) in;
layout(set = 0, binding = RULE_BACK_DQKV) buffer dqkv_block { float dqkv[]; };
layout(set = 0, binding = RULE_BACK_PARTS) readonly buffer parts_block { float parts[]; };
layout(set = 0, binding = RULE_BACK_DBETA) buffer dbeta_block { float dbeta[]; };
layout(set = 0, binding = RULE_BACK_DG) buffer dg_block { float dg[]; };

// The sum over the blocks of value head j, of their element i.
float blocks_sum(uint t, uint j, uint i) {
  uint from = (t * args.Hv + j) * args.part + args.n * args.Dv, of_block = (args.part - args.n * args.Dv) / args.blocks;
  float sum = 0.0;
  for (uint b = 0; b < args.blocks; b++) sum += parts[from + b * of_block + i];
  return sum;
}

// The sum over the value heads that use a key head.
float heads_sum(uint t, uint key, uint i) {
  float sum = 0.0;
  for (uint j = 0; j < args.Hv; j++)
    if (j / args.share % args.H == key) sum += blocks_sum(t, j, i);
  return sum;
}

void main() {
  const uint keys = args.H * args.Dk, values = args.Hv * args.Dv, tail = (args.n + 1) * args.Dk;
  const uint element = gl_GlobalInvocationID.x;
  for (uint t = gl_WorkGroupID.y; t < args.T; t += gl_NumWorkGroups.y) {
    uint i = element, row = t * args.qkv_stride;
    if (i < keys) {
      dqkv[row + args.q_at + i] += heads_sum(t, i / args.Dk, args.n * args.Dk + i % args.Dk);
      continue;
    }
    i -= keys;
    if (i < args.n * keys) {
      dqkv[row + args.k_at + i] += heads_sum(t, i % keys / args.Dk, i / keys * args.Dk + i % args.Dk);
      continue;
    }
    i -= args.n * keys;
    if (i < args.n * values) {
      uint j = i % values / args.Dv;
      dqkv[row + args.v_at + i] += parts[(t * args.Hv + j) * args.part + i / values * args.Dv + i % args.Dv];
      continue;
    }
    i -= args.n * values;
    if (i < args.n * args.Hv) {
      dbeta[t * args.beta_stride + i] += blocks_sum(t, i % args.Hv, tail + i / args.Hv);
      continue;
    }
    i -= args.n * args.Hv;
    if (i < args.Hv && args.gated != 0) dg[t * args.g_stride + i] += blocks_sum(t, i, tail + args.n);
  }
}
