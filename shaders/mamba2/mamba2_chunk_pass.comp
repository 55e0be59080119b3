#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The only sequential part of SSD: over the chunks of a sequence, replaces what a chunk adds by the state before it,
//   S_c, S <- S, e^G_last S + S_c
// states: see mamba2_chunk.h; state (slots, heads, N, P). Workgroups (ceil(rows fours / lanes), heads, sequences): an
// invocation carries 4 elements of S through all chunks. It loads its data AHEAD chunks early, to hide the latency of
// memory. Any N, P.
#include "mamba2_chunk_pass.h"
layout(local_size_x_id = MAMBA2_CHUNK_PASS_SPEC_LANES) in;
layout(constant_id = MAMBA2_CHUNK_PASS_SPEC_HALVES) const uint HALVES = 0;
layout(set = 0, binding = MAMBA2_CHUNK_PASS_STATES) buffer states_block { vec4 states[]; };
layout(set = 0, binding = MAMBA2_CHUNK_PASS_STATES) buffer states16_block { uvec2 states16[]; };
layout(set = 0, binding = MAMBA2_CHUNK_PASS_STATE) restrict buffer state_block { float state[]; };
layout(set = 0, binding = MAMBA2_CHUNK_PASS_SEQUENCES) restrict readonly buffer sequences_block {
  sequence sequences[];
};

const uint AHEAD = 8;

// As loaded: using it would wait for the load.
struct added {
  uvec4 bits;
  vec2 factors;
};

added fetch(uint record, uint e) {
  uint last = record + args.rows * args.fours;
  if (HALVES == 0) return added(floatBitsToUint(states[record + e]), states[last].xy);
  return added(uvec4(states16[record + e], 0, 0), uintBitsToFloat(states16[last]));
}

vec4 after(vec4 S, added x) {
  if (HALVES == 0) return x.factors.x * S + uintBitsToFloat(x.bits);
  return x.factors.x * S + x.factors.y * vec4(unpackHalf2x16(x.bits.x), unpackHalf2x16(x.bits.y));
}

// Stores the state before a chunk, whose elements are at most `bound`. For coopmat, a power of two scales them to the
// top of f16's range.
void put(uint record, uint e, vec4 S, float bound) {
  if (HALVES == 0) {
    states[record + e] = S;
    return;
  }
  uint power = max(floatBitsToUint(bound) >> 23, 15); // bound < 2^(power - 126)
  S *= uintBitsToFloat(268 - power << 23);
  states16[record + e] = uvec2(packHalf2x16(S.xy), packHalf2x16(S.zw));
  if (e == 0) states16[record + args.rows * args.fours + 1].y = power - 14 << 23;
}

void main() {
  sequence s = sequences[gl_WorkGroupID.z];
  uint e = gl_GlobalInvocationID.x, head = gl_WorkGroupID.y, n = e / args.fours, p = e % args.fours * 4;
  if (n >= args.rows || s.T == 0) return;
  uint at = s.slot * args.state_stride + (head * args.N + n) * args.P + p;
  uint size = args.rows * args.fours + (HALVES == 0 ? 1 : 2), step = args.heads * size;
  uint first = 0, count = (s.T + args.C - 1) / args.C; // of this sequence's chunks
  for (uint z = 0; z < gl_WorkGroupID.z; z++) first += (sequences[z].T + args.C - 1) / args.C;
  first = (first * args.heads + head) * size;

  vec4 S;
  [[unroll]] for (uint i = 0; i < 4; i++) S[i] = n < args.N && p + i < args.P ? state[at + i] : 0.0;
  float bound = HALVES == 0 ? 0.0 : uintBitsToFloat(states16[first + args.rows * args.fours + 1].x);
  added next[AHEAD];
  [[unroll]] for (uint i = 0; i < AHEAD; i++) next[i] = fetch(first + min(i, count - 1) * step, e);
  for (uint c0 = 0; c0 < count; c0 += AHEAD) {
    [[unroll]] for (uint i = 0; i < AHEAD; i++) {
      uint c = c0 + i;
      if (c >= count) break;
      put(first + c * step, e, S, bound);
      S = after(S, next[i]);
      bound = min(next[i].factors.x * bound + args.C * next[i].factors.y, 3e38);
      if (c + AHEAD < count) next[i] = fetch(first + (c + AHEAD) * step, e);
    }
  }
  [[unroll]] for (uint i = 0; i < 4; i++)
    if (n < args.N && p + i < args.P) state[at + i] = S[i];
}
