#version 450
#extension GL_GOOGLE_include_directive : require
// Rotates the first r elements of every head of q and k by their positions, in place (half-split RoPE, Su et al. 2021),
// and appends k and v to the caches:
//   y[j] = x[j] cos - x[j + r/2] sin    y[j + r/2] = x[j] sin + x[j + r/2] cos    j < r/2
// The angle of position p is the sum of the angles of its four bytes, so its rotation is the product of four rows of
// the table. The host computes the table in double, since sin and cos of a device may be wrong by 2^-11.
// qkv (T, (heads + 2 kv_heads) d), caches (slots, capacity, kv_heads, d) with position p at p % capacity. Workgroups
// (ceil((heads + 2 kv_heads) ceil(d / 2) / lanes), T, B): an invocation computes two elements of one head, j and j +
// r/2 or two that are not rotated; if d is odd, the last has one. Sets the counters of attention_step, which runs next,
// to 0. T <= capacity. Any d, r <= d.
#include "rope_append.h"
layout(local_size_x_id = ROPE_APPEND_SPEC_LANES) in;
layout(set = 0, binding = ROPE_APPEND_QKV) buffer qkv_block { float qkv[]; };
layout(set = 0, binding = ROPE_APPEND_CACHE_K) writeonly buffer cache_k_block { float cache_k[]; };
layout(set = 0, binding = ROPE_APPEND_CACHE_V) writeonly buffer cache_v_block { float cache_v[]; };
layout(set = 0, binding = ROPE_APPEND_TABLE) readonly buffer table_block { float table[]; };
layout(set = 0, binding = ROPE_APPEND_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
layout(set = 0, binding = ROPE_APPEND_PARTS) writeonly buffer parts_block { uint parts[]; };

vec2 rotate(vec2 x, uint position, uint j) {
  for (uint level = 0; level < 4; level++) {
    uint byte = position >> (8 * level) & 255;
    uint row = (level * 256 + byte) * args.table_stride;
    float c = table[row + j], s = table[row + args.rotary - args.rotary / 2 + j];
    if (byte != 0) x = vec2(x.x * c - x.y * s, x.x * s + x.y * c);
  }
  return x;
}

void append(uint head, uint to, uint j, float x) {
  if (head < args.heads) return;
  uint h = head - args.heads;
  if (h < args.kv_heads)
    cache_k[to + h * args.d + j] = x;
  else
    cache_v[to + (h - args.kv_heads) * args.d + j] = x;
}

void main() {
  sequence s = sequences[gl_WorkGroupID.z];
  uint t = gl_WorkGroupID.y, width = (args.d + 1) / 2, pairs = args.rotary / 2;
  uint head = gl_GlobalInvocationID.x / width, j = gl_GlobalInvocationID.x % width;
  if (t == 0 && gl_GlobalInvocationID.x < args.counters)
    parts[gl_WorkGroupID.z * args.counters + gl_GlobalInvocationID.x] = 0;
  if (t >= s.T || head >= args.heads + 2 * args.kv_heads) return;
  uint from = (s.row + t) * args.qkv_stride + head * args.d;
  uint to = s.slot * args.cache_stride + (s.pos + t) % args.capacity * args.kv_heads * args.d;
  if (j >= pairs) {
    uint first = pairs + j, second = first + width - pairs;
    append(head, to, first, qkv[from + first]);
    if (second < args.d) append(head, to, second, qkv[from + second]);
    return;
  }
  vec2 x = vec2(qkv[from + j], qkv[from + j + pairs]);
  if (head < args.heads + args.kv_heads) {
    x = rotate(x, s.pos + t, j);
    qkv[from + j] = x.x;
    qkv[from + j + pairs] = x.y;
  }
  append(head, to, j, x.x);
  append(head, to, j + pairs, x.y);
}
