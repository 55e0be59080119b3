#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The only sequential part of SSD: over the chunks of a sequence, what a chunk adds is replaced by the state before it,
//   S_c, S <- S, e^G_last S + S_c
// states: see mamba2_chunk.h; state (slots, heads, N, P). Workgroups (ceil(N ceil(P / 4) / lanes), heads, sequences):
// an invocation carries 4 numbers of S through all chunks. Any N, P.
#include "mamba2_chunk_pass.h"
layout(local_size_x_id = MAMBA2_CHUNK_PASS_SPEC_LANES) in;
layout(set = 0, binding = MAMBA2_CHUNK_PASS_STATES) buffer states_block { vec4 states[]; };
layout(set = 0, binding = MAMBA2_CHUNK_PASS_STATE) buffer state_block { float state[]; };
layout(set = 0, binding = MAMBA2_CHUNK_PASS_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };

void main() {
  sequence s = sequences[gl_WorkGroupID.z];
  uint e = gl_GlobalInvocationID.x, head = gl_WorkGroupID.y, P4 = (args.P + 3) / 4;
  if (e >= args.N * P4 || s.T == 0) return;
  uint p = e % P4 * 4, at = s.slot * args.state_stride + (head * args.N + e / P4) * args.P + p;
  uint size = args.N * P4 + 1, chunk = 0; // number of this sequence's first chunk
  for (uint z = 0; z < gl_WorkGroupID.z; z++) chunk += (sequences[z].T + args.C - 1) / args.C;

  vec4 S;
  [[unroll]] for (uint i = 0; i < 4; i++) S[i] = p + i < args.P ? state[at + i] : 0.0;
  for (uint t = 0; t < s.T; t += args.C, chunk++) {
    uint record = (chunk * args.heads + head) * size;
    vec4 added = states[record + e];
    float decay = states[record + size - 1].x;
    states[record + e] = S;
    S = decay * S + added;
  }
  [[unroll]] for (uint i = 0; i < 4; i++)
    if (p + i < args.P) state[at + i] = S[i];
}
