#version 450
#extension GL_GOOGLE_include_directive : require
#include "stored.glsl"
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// o[t] = softmax(q k^T / sqrt(d)) v over the positions that token t sees. The cache is a ring: position p is at p %
// capacity. Online softmax (Milakov, Gimelshein 2018): with m the maximum so far, keeps sum e^(s - m) and sum e^(s - m)
// v, and rescales both when m grows.
// qkv (T, heads d ...), caches (slots, capacity, kv_heads, d), o (T, heads d).
// Workgroups (ceil(T / QUERIES), heads, B): QUERIES tokens of one head. Keys come in strips of one per invocation: each
// invocation scores its key against all queries, then owns columns of v and o. Two barriers per strip. Any d, T; T <=
// capacity, and T + window - 1 <= capacity in a ring. attention_step handles single tokens.
#include "attention.h"
layout(local_size_x_id = ATTENTION_SPEC_LANES) in;
layout(constant_id = ATTENTION_SPEC_D) const uint D = 64;
layout(constant_id = ATTENTION_SPEC_QUERIES) const uint QUERIES = 8;
layout(constant_id = ATTENTION_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(set = 0, binding = ATTENTION_O) writeonly buffer o_block { stored o[]; };
layout(set = 0, binding = ATTENTION_QKV) readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = ATTENTION_CACHE_K) readonly buffer cache_k_block { float cache_k[]; };
layout(set = 0, binding = ATTENTION_CACHE_K) readonly buffer cache_k4_block { vec4 cache_k4[]; };
layout(set = 0, binding = ATTENTION_CACHE_V) readonly buffer cache_v_block { float cache_v[]; };
layout(set = 0, binding = ATTENTION_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };

const uint LANES = gl_WorkGroupSize.x;
const uint D4 = (D + 3) / 4;
const uint OWN = (D + LANES - 1) / LANES; // columns of an invocation, LANES apart
const uint BATCH = 8;                         // loads in flight; divides LANES
const float LOWEST = -3.402823466e38;         // stands for no key; finite, so that differences are defined
shared vec4 queries[QUERIES * D4];
shared float weights[QUERIES * LANES];
shared float slots[QUERIES * LANES]; // one per subgroup is used

vec4 key4(uint at, uint j) {
  if (ALIGNED != 0) return cache_k4[(at + j) / 4];
  uint left = D - j;
  at += j;
  return vec4(cache_k[at], left > 1 ? cache_k[at + 1] : 0.0, left > 2 ? cache_k[at + 2] : 0.0,
              left > 3 ? cache_k[at + 3] : 0.0);
}

uint first_seen(uint position) {
  return args.window != 0 && position + 1 > args.window ? position + 1 - args.window : 0;
}

void stage(uint lane, uint from, uint count) {
  for (uint i = lane; i < QUERIES * D4; i += LANES) {
    uint t = i / D4, j = i % D4 * 4;
    [[unroll]] for (uint k = 0; k < 4; k++)
      queries[i][k] = t < count && j + k < D ? args.scale * qkv[from + t * args.qkv_stride + j + k] : 0.0;
  }
  barrier();
}

void main() {
  uint lane = gl_LocalInvocationID.x, head = gl_WorkGroupID.y, t0 = gl_WorkGroupID.x * QUERIES;
  sequence s = sequences[gl_WorkGroupID.z];
  if (t0 >= s.T) return;
  uint count = min(QUERIES, s.T - t0);
  uint cache_at = s.slot * args.cache_stride + head / (args.heads / args.kv_heads) * D, step = args.kv_heads * D;
  stage(lane, (s.row + t0) * args.qkv_stride + head * D, count);

  float top[QUERIES], sum[QUERIES], y[QUERIES * OWN]; // sum: over this invocation's keys
  [[unroll]] for (uint i = 0; i < QUERIES; i++) top[i] = LOWEST, sum[i] = 0.0;
  [[unroll]] for (uint i = 0; i < QUERIES * OWN; i++) y[i] = 0.0;

  uint end = s.pos + t0 + count;
  for (uint p0 = first_seen(s.pos + t0); p0 < end; p0 += LANES) {
    uint p = p0 + lane, at = cache_at + p % args.capacity * step;
    float score[QUERIES];
    [[unroll]] for (uint i = 0; i < QUERIES; i++) score[i] = 0.0;
    if (p < end) {
      for (uint j = 0; j < D4; j++) {
        vec4 k = key4(at, 4 * j);
        [[unroll]] for (uint i = 0; i < QUERIES; i++) score[i] += dot(queries[i * D4 + j], k);
      }
    }
    [[unroll]] for (uint i = 0; i < QUERIES; i++) {
      uint position = s.pos + t0 + i;
      if (p > position || p < first_seen(position) || i >= count) score[i] = LOWEST;
      float most = subgroupMax(score[i]);
      if (subgroupElect()) slots[gl_SubgroupID * QUERIES + i] = most;
    }
    barrier();
    [[unroll]] for (uint i = 0; i < QUERIES; i++) {
      float most = top[i];
      for (uint g = 0; g < gl_NumSubgroups; g++) most = max(most, slots[g * QUERIES + i]);
      float shrink = exp(top[i] - most);
      float w = score[i] == LOWEST ? 0.0 : exp(score[i] - most);
      top[i] = most;
      sum[i] = sum[i] * shrink + w;
      weights[i * LANES + lane] = w;
      [[unroll]] for (uint c = 0; c < OWN; c++) y[i * OWN + c] *= shrink;
    }
    barrier();
    [[unroll]] for (uint c = 0; c < OWN; c++) {
      uint column = lane + c * LANES;
      if (column < D) {
        uint keys = min(LANES, end - p0);
        for (uint k0 = 0; k0 < keys; k0 += BATCH) { // past the last key it is read again with weight 0
          float v[BATCH];
          [[unroll]] for (uint k = 0; k < BATCH; k++)
            v[k] = cache_v[cache_at + min(p0 + k0 + k, end - 1) % args.capacity * step + column];
          [[unroll]] for (uint k = 0; k < BATCH; k++)
            [[unroll]] for (uint i = 0; i < QUERIES; i++) y[i * OWN + c] += weights[i * LANES + k0 + k] * v[k];
        }
      }
    }
  }

  // Sums over all invocations, in order. The last readers of the slots are past the second barrier of the loop.
  [[unroll]] for (uint i = 0; i < QUERIES; i++) {
    float part = subgroupAdd(sum[i]);
    if (subgroupElect()) slots[gl_SubgroupID * QUERIES + i] = part;
  }
  barrier();
  [[unroll]] for (uint i = 0; i < QUERIES; i++) {
    float total = 0.0;
    for (uint g = 0; g < gl_NumSubgroups; g++) total += slots[g * QUERIES + i];
    uint to = (s.row + t0 + i) * args.o_stride + head * D;
    [[unroll]] for (uint c = 0; c < OWN; c++) {
      uint column = lane + c * LANES;
      if (i < count && column < D) o[to + column] = STORED(y[i * OWN + c] / total);
    }
  }
}
