#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The outputs of a chunk (SSD, Dao and Gu 2024), with S the state before it:
//   y_i = e^G_i C_i S + sum_{j <= i} M_ij x_j + D x_i,   M_ij = (C_i . B_j) e^(G_i - G_j) dt_j
// xBC (T, heads P + 2 groups N), dt, g (T, heads), y (T, heads P), states: see mamba2_chunk.h. Workgroups (chunks,
// heads): first 4 x 4 blocks of M's lower triangle into shared memory, then 4 x 4 blocks of y, one per invocation at a
// time. C, B, x and S are read from memory in vectors of four; a workgroup shares them through the cache. Rows past the
// end of the sequence repeat the last one, to stay inside the buffer, and are dropped. Any N, P, groups, T.
#include "mamba2_chunk_output.h"
layout(local_size_x_id = MAMBA2_CHUNK_OUTPUT_SPEC_LANES) in;
layout(constant_id = MAMBA2_CHUNK_OUTPUT_SPEC_C) const uint C = 32;
layout(constant_id = MAMBA2_CHUNK_OUTPUT_SPEC_N) const uint N = 128;
layout(constant_id = MAMBA2_CHUNK_OUTPUT_SPEC_P) const uint P = 64;
layout(constant_id = MAMBA2_CHUNK_OUTPUT_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(set = 0, binding = MAMBA2_CHUNK_OUTPUT_Y) writeonly buffer y_block { float y[]; };
layout(set = 0, binding = MAMBA2_CHUNK_XBC) readonly buffer xBC_block { float xBC[]; };
layout(set = 0, binding = MAMBA2_CHUNK_XBC) readonly buffer xBC4_block { vec4 xBC4[]; };
layout(set = 0, binding = MAMBA2_CHUNK_STATES) readonly buffer states_block { vec4 states[]; };
layout(set = 0, binding = MAMBA2_CHUNK_DT) readonly buffer dt_block { float dt[]; };
layout(set = 0, binding = MAMBA2_CHUNK_G) readonly buffer g_block { float g[]; };
layout(set = 0, binding = MAMBA2_CHUNK_OUTPUT_D) readonly buffer D_block { float D[]; };
layout(set = 0, binding = MAMBA2_CHUNK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
#include "chunk_gates.glsl"
#include "mamba2_load.glsl"

const uint P4 = (P + 3) / 4;
const uint SIDE = C / 4;                    // blocks along a side of M
const uint LOWER = SIDE * (SIDE + 1) / 2;   // on and below the diagonal
const uint PITCH = SIDE + 1;                // vec4 of a row of M; the extra one spreads rows over banks
shared vec4 M[C * PITCH];
shared float sizes[C];

// Computes M's blocks on and below the diagonal; C_at and B_at are those of the chunk's first token.
void products(uint lane, uint count, uint C_at, uint B_at) {
  for (uint job = lane; job < LOWER; job += gl_WorkGroupSize.x) {
    uint block = job, bi = 0;
    while (block > bi) block -= ++bi; // row bi of the triangle has bi + 1 blocks
    uint c_at[4], b_at[4];
    vec4 sums[4];
    [[unroll]] for (uint k = 0; k < 4; k++) {
      c_at[k] = C_at + min(bi * 4 + k, count - 1) * args.xBC_stride;
      b_at[k] = B_at + min(block * 4 + k, count - 1) * args.xBC_stride;
      sums[k] = vec4(0.0);
    }
    for (uint n = 0; n < N; n += 4) {
      vec4 c[4];
      [[unroll]] for (uint i = 0; i < 4; i++) c[i] = load4(c_at[i], n, N);
      [[unroll]] for (uint j = 0; j < 4; j++) {
        vec4 b = load4(b_at[j], n, N);
        [[unroll]] for (uint i = 0; i < 4; i++) sums[i][j] += dot(c[i], b);
      }
    }
    [[unroll]] for (uint k = 0; k < 4; k++) {
      uint i = bi * 4 + k;
      vec4 value;
      [[unroll]] for (uint l = 0; l < 4; l++) {
        uint j = block * 4 + l;
        value[l] = j <= i ? sums[k][l] * decay_between(i, j) * sizes[j] : 0.0;
      }
      M[i * PITCH + block] = value;
    }
  }
}

// Computes tokens i0 ... i0 + 3 and columns p ... p + 3 of y.
void outputs(uint row, uint count, uint head, uint C_at, uint x_at, uint record, uint i0, uint p) {
  uint c_at[4];
  vec4 sums[4];
  [[unroll]] for (uint i = 0; i < 4; i++) {
    c_at[i] = C_at + min(i0 + i, count - 1) * args.xBC_stride;
    sums[i] = vec4(0.0);
  }
  for (uint n = 0; n < N; n += 4) {
    vec4 S[4]; // rows past N are multiplied by zeros of C
    [[unroll]] for (uint k = 0; k < 4; k++) S[k] = states[record + min(n + k, N - 1) * P4 + p / 4];
    [[unroll]] for (uint i = 0; i < 4; i++) {
      vec4 c = load4(c_at[i], n, N);
      [[unroll]] for (uint k = 0; k < 4; k++) sums[i] += c[k] * S[k];
    }
  }
  [[unroll]] for (uint i = 0; i < 4; i++) sums[i] *= decay_from_start(i0 + i);
  for (uint j = 0; j <= i0; j += 4) {
    vec4 x[4];
    [[unroll]] for (uint k = 0; k < 4; k++) x[k] = load4(x_at + min(j + k, count - 1) * args.xBC_stride, p, P);
    [[unroll]] for (uint i = 0; i < 4; i++) {
      vec4 m = M[(i0 + i) * PITCH + j / 4];
      [[unroll]] for (uint k = 0; k < 4; k++) sums[i] += m[k] * x[k];
    }
  }
  for (uint i = 0; i < 4 && i0 + i < count; i++) {
    vec4 x = load4(x_at + (i0 + i) * args.xBC_stride, p, P);
    uint to = (row + i0 + i) * args.y_stride + head * P + p;
    [[unroll]] for (uint k = 0; k < 4; k++) {
      if (p + k < P) y[to + k] = sums[i][k] + D[args.D_per_element != 0 ? head * P + p + k : head] * x[k];
    }
  }
}

void main() {
  uint lane = gl_LocalInvocationID.x, head = gl_WorkGroupID.y;
  uint chunk = gl_WorkGroupID.x, z = 0;
  while (z < args.B && chunk >= (sequences[z].T + C - 1) / C) chunk -= (sequences[z++].T + C - 1) / C;
  if (z == args.B) return; // the host assumes a partial chunk at the end of every sequence
  uint row = sequences[z].row + chunk * C, count = min(C, sequences[z].T - chunk * C);
  uint x_at = row * args.xBC_stride + head * P;
  uint B_at = row * args.xBC_stride + args.heads * P + head / (args.heads / args.groups) * N;
  uint C_at = B_at + args.groups * N;

  for (uint t = lane; t < C; t += gl_WorkGroupSize.x)
    sizes[t] = t < count ? dt[(row + t) * args.dt_stride + head] : 0.0;
  chunk_gates(lane, row, count, head);
  products(lane, count, C_at, B_at);
  barrier();
  uint record = (gl_WorkGroupID.x * args.heads + head) * MAMBA2_CHUNK_RECORD(N, P);
  for (uint job = lane; job < (count + 3) / 4 * P4; job += gl_WorkGroupSize.x)
    outputs(row, count, head, C_at, x_at, record, job / P4 * 4, job % P4 * 4);
}
