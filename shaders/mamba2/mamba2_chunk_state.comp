#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// What each chunk adds to the state of a head (SSD, Dao and Gu 2024):  sum_t e^(G_last - G_t) dt_t B_t^T x_t
// xBC (T, heads P + 2 groups N), dt, g (T, heads), states: see mamba2_chunk.h. Workgroups (chunks, heads, parts): a
// part is LANES blocks of 4 rows (of N) x 4 columns (of P), one per invocation, columns first, so that writes are
// adjacent. B and x are read from memory; a workgroup shares them through the cache. Any N, P, groups, T.
#include "mamba2_chunk_state.h"
layout(local_size_x_id = MAMBA2_CHUNK_STATE_SPEC_LANES) in;
layout(constant_id = MAMBA2_CHUNK_STATE_SPEC_C) const uint C = 32;
layout(constant_id = MAMBA2_CHUNK_STATE_SPEC_N) const uint N = 128;
layout(constant_id = MAMBA2_CHUNK_STATE_SPEC_P) const uint P = 64;
layout(constant_id = MAMBA2_CHUNK_STATE_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(set = 0, binding = MAMBA2_CHUNK_STATES) writeonly buffer states_block { vec4 states[]; };
layout(set = 0, binding = MAMBA2_CHUNK_XBC) readonly buffer xBC_block { float xBC[]; };
layout(set = 0, binding = MAMBA2_CHUNK_XBC) readonly buffer xBC4_block { vec4 xBC4[]; };
layout(set = 0, binding = MAMBA2_CHUNK_DT) readonly buffer dt_block { float dt[]; };
layout(set = 0, binding = MAMBA2_CHUNK_G) readonly buffer g_block { float g[]; };
layout(set = 0, binding = MAMBA2_CHUNK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
#include "chunk_gates.glsl"
#include "mamba2_load.glsl"

const uint N4 = (N + 3) / 4, P4 = (P + 3) / 4;
shared float weights[C]; // e^(G_last - G_t) dt_t

void main() {
  uint lane = gl_LocalInvocationID.x, head = gl_WorkGroupID.y;
  uint chunk = gl_WorkGroupID.x, z = 0;
  while (z < args.B && chunk >= (sequences[z].T + C - 1) / C) chunk -= (sequences[z++].T + C - 1) / C;
  if (z == args.B) return; // the host assumes a partial chunk at the end of every sequence
  uint row = sequences[z].row + chunk * C, count = min(C, sequences[z].T - chunk * C);

  chunk_gates(lane, row, count, head);
  for (uint t = lane; t < count; t += gl_WorkGroupSize.x)
    weights[t] = decay_between(C - 1, t) * dt[(row + t) * args.dt_stride + head];
  barrier();

  uint record = (gl_WorkGroupID.x * args.heads + head) * MAMBA2_CHUNK_RECORD(N, P);
  uint job = gl_WorkGroupID.z * gl_WorkGroupSize.x + lane;
  if (job == 0) states[record + N * P4] = vec4(decay_from_start(C - 1));
  if (job >= N4 * P4) return;
  uint n = job / P4 * 4, p = job % P4 * 4;
  uint x_at = row * args.xBC_stride + head * P;
  uint B_at = row * args.xBC_stride + args.heads * P + head / (args.heads / args.groups) * N;
  vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
  for (uint t = 0; t < count; t++) {
    vec4 b = load4(B_at + t * args.xBC_stride, n, N), x = weights[t] * load4(x_at + t * args.xBC_stride, p, P);
    [[unroll]] for (uint r = 0; r < 4; r++) sums[r] += b[r] * x;
  }
  [[unroll]] for (uint r = 0; r < 4; r++)
    if (n + r < N) states[record + (n + r) * P4 + p / 4] = sums[r];
}
