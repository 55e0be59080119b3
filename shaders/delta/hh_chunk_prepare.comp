#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The part of the chunkwise Head-in-Head rule that needs no state (docs/mixers.md): masks M, and with n, i tokens of a
// chunk, a, b blocks of D elements,
//   A[(n,a),(i,b)] = beta_n M^n_ab (k^n_b . k^i_b) e^(G_n - G_i), i < n      Tm = (I + A)^-1 diag(beta)
//   P[n,(i,b)] = scale (q^n_b . k^i_b) e^(G_n - G_i), i <= n
// qkv (T, 2 H R D + Hv Dv), beta, g (T, Hv), mask (T or 1, Hv R R), prepared: see hh_chunk.h. Workgroups (chunks, Hv):
// one record each. Products: a job is 4 x 4 tokens of one block. The inverse X: invocations own columns of it and
// substitute forward, R rows of a token at a time, without a barrier. X_ij is stored at (j, i), above the diagonal,
// where A is zero. Any D, R; C a multiple of 4.
#include "hh_chunk_prepare.h"
layout(local_size_x_id = HH_CHUNK_PREPARE_SPEC_LANES) in;
layout(constant_id = HH_CHUNK_PREPARE_SPEC_C) const uint C = 16;
layout(constant_id = HH_CHUNK_PREPARE_SPEC_D) const uint D = 16;
layout(constant_id = HH_CHUNK_PREPARE_SPEC_R) const uint R = 4;
layout(constant_id = HH_CHUNK_PREPARE_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = HH_CHUNK_PREPARE_SPEC_NONNEG) const uint NONNEG = HH_GIVEN;
layout(set = 0, binding = HH_CHUNK_PREPARE_PREPARED) writeonly buffer prepared_block { float prepared[]; };
layout(set = 0, binding = HH_CHUNK_PREPARE_QKV) readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = HH_CHUNK_PREPARE_QKV) readonly buffer qkv4_block { vec4 qkv4[]; };
layout(set = 0, binding = HH_CHUNK_PREPARE_BETA) readonly buffer beta_block { float beta[]; };
layout(set = 0, binding = HH_CHUNK_PREPARE_G) readonly buffer g_block { float g[]; };
layout(set = 0, binding = HH_CHUNK_PREPARE_MASK) readonly buffer mask_block { float mask[]; };
layout(set = 0, binding = HH_CHUNK_PREPARE_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
#include "hh_mask.glsl"

const uint DK = R * D;
const uint D4 = (D + 3) / 4;
const uint CR = C * R;
const uint PITCH = CR + 1;
const uint LOWER = C / 4 * (C / 4 + 1) / 2; // 4 x 4 tiles on and below the diagonal
const float LOWEST_G = -1e4;                // e^-104 is about the smallest f32; sums of this stay finite
shared float A[CR * PITCH];                 // A below the diagonal, the transposed inverse above it
shared float roots[CR * R];                 // N
shared float masks[CR * R];
shared float betas[C], decays[C];
shared vec2 G[C]; // the sum and its rounding error

vec4 load4(uint i, uint d) {
  if (ALIGNED != 0) return qkv4[(i + d) / 4];
  uint left = D - d;
  i += d;
  return vec4(qkv[i], left > 1 ? qkv[i + 1] : 0.0, left > 2 ? qkv[i + 2] : 0.0, left > 3 ? qkv[i + 3] : 0.0);
}

void gates(uint lane, uint row, uint count, uint head) {
  for (uint i = lane; i < C; i += gl_WorkGroupSize.x) {
    betas[i] = i < count ? beta[(row + i) * args.beta_stride + head] : 0.0;
    decays[i] = i < count && args.gated != 0 ? max(g[(row + i) * args.g_stride + head], LOWEST_G) : 0.0;
  }
  barrier();
  for (uint i = lane; i < C; i += gl_WorkGroupSize.x) {
    precise float sum = 0.0, lost = 0.0;
    for (uint j = 0; j <= i; j++) { // Knuth's exact sum of two values
      precise float next = sum + decays[j], added = next - sum;
      lost += (sum - (next - added)) + (decays[j] - added);
      sum = next;
    }
    G[i] = vec2(sum, lost);
  }
  barrier();
}

// e^(G_i - G_j) for i >= j, any value for i < j.
float decay(vec2 G_i, vec2 G_j) {
  precise vec2 d = G_i - G_j;
  return accurate_exp(min(d.x + d.y, 0.0));
}

void make_masks(uint lane, uint row, uint count, uint head) {
  if (NONNEG != HH_GIVEN) {
    for (uint i = lane; i < count * R; i += gl_WorkGroupSize.x) {
      float N[R];
      mask_row((row + i / R) * args.mask_stride + (head * R + i % R) * R, N);
      [[unroll]] for (uint b = 0; b < R; b++) roots[i * R + b] = N[b];
    }
    barrier();
  }
  for (uint i = lane; i < CR * R; i += gl_WorkGroupSize.x) {
    uint t = i / (R * R), a = i / R % R, b = i % R;
    float M = 0.0;
    if (t < count) {
      if (NONNEG == HH_GIVEN) {
        M = mask[(row + t) * args.mask_stride + (head * R + a) * R + b];
      } else {
        [[unroll]] for (uint c = 0; c < R; c++) M += roots[(t * R + a) * R + c] * roots[(t * R + b) * R + c];
      }
    }
    masks[i] = M;
  }
  barrier();
}

// 16 products of one block: tokens n0 ... n0 + 3 (rows of q or k at left_at) with i0 ... i0 + 3.
mat4 products(uint left_at, uint right_at, uint n0, uint i0, uint count) {
  mat4 sums = mat4(0.0); // sums[j][i]: column i0 + j, row n0 + i
  for (uint d = 0; d < D4; d++) {
    vec4 left[4];
    [[unroll]] for (uint i = 0; i < 4; i++) left[i] = load4(left_at + min(n0 + i, count - 1) * args.qkv_stride, 4 * d);
    [[unroll]] for (uint j = 0; j < 4; j++) {
      vec4 right = load4(right_at + min(i0 + j, count - 1) * args.qkv_stride, 4 * d);
      [[unroll]] for (uint i = 0; i < 4; i++) sums[j][i] += dot(left[i], right);
    }
  }
  return sums;
}

// Computes the lower triangles of A and P; above the diagonal P is zero.
void fill(uint lane, uint row, uint count, uint key_head, uint record) {
  for (uint job = lane; job < 2 * R * LOWER; job += gl_WorkGroupSize.x) {
    uint b = job % R, tile = job / R % LOWER, bi = 0;
    bool keys = job < R * LOWER;
    while (tile > bi) tile -= ++bi; // row bi of the triangle has bi + 1 tiles
    uint q_at = row * args.qkv_stride + key_head * DK + b * D, k_at = q_at + args.H * DK;
    uint n0 = 4 * bi, i0 = 4 * tile;
    mat4 sums = products(keys ? k_at : q_at, k_at, n0, i0, count);
    [[unroll]] for (uint e = 0; e < 16; e++) {
      uint n = n0 + e / 4, i = i0 + e % 4;
      float product = n < count && i <= n ? sums[e % 4][e / 4] * decay(G[n], G[i]) : 0.0;
      if (!keys) {
        prepared[record + HH_CHUNK_P(C, R) + n * CR + i * R + b] = args.scale * product;
      } else if (i < n) {
        [[unroll]] for (uint a = 0; a < R; a++) A[(n * R + a) * PITCH + i * R + b] =
            betas[n] * masks[(n * R + a) * R + b] * product;
      }
    }
  }
  for (uint i = lane; i < C * CR; i += gl_WorkGroupSize.x)
    if (i % CR / R / 4 > i / CR / 4) prepared[record + HH_CHUNK_P(C, R) + i] = 0.0;
  barrier();
}

// Column j of X = (I + A)^-1:  X_(n,a),j = -A_(n,a),j - sum_{m of tokens between} A_(n,a),m X_m,j
void invert(uint lane) {
  for (uint j = lane; j < CR; j += gl_WorkGroupSize.x) {
    for (uint n = j / R + 1; n < C; n++) {
      float sums[R];
      [[unroll]] for (uint a = 0; a < R; a++) sums[a] = -A[(n * R + a) * PITCH + j];
      for (uint m = (j / R + 1) * R; m < n * R; m++) {
        float x = A[j * PITCH + m];
        [[unroll]] for (uint a = 0; a < R; a++) sums[a] -= A[(n * R + a) * PITCH + m] * x;
      }
      [[unroll]] for (uint a = 0; a < R; a++) A[j * PITCH + n * R + a] = sums[a];
    }
  }
  barrier();
}

void main() {
  uint lane = gl_LocalInvocationID.x, head = gl_WorkGroupID.y;
  uint chunk = gl_WorkGroupID.x, z = 0;
  while (z < args.B && chunk >= (sequences[z].T + C - 1) / C) chunk -= (sequences[z++].T + C - 1) / C;
  if (z == args.B) return; // the host assumes a partial chunk at the end of every sequence
  uint row = sequences[z].row + chunk * C, count = min(C, sequences[z].T - chunk * C);
  uint record = (gl_WorkGroupID.x * args.Hv + head) * HH_CHUNK_RECORD(C, R);

  gates(lane, row, count, head);
  make_masks(lane, row, count, head);
  fill(lane, row, count, head / (args.Hv / args.H), record);
  invert(lane);

  for (uint k = lane; k < CR * CR; k += gl_WorkGroupSize.x) {
    uint i = k / CR, j = k % CR;
    float x = j / R < i / R ? A[j * PITCH + i] : i == j ? 1.0 : 0.0;
    prepared[record + k] = x * betas[j / R];
  }
  for (uint i = lane; i < CR * R; i += gl_WorkGroupSize.x)
    prepared[record + HH_CHUNK_MASKS(C, R) + i] = accurate_exp(G[i / (R * R)].x + G[i / (R * R)].y) * masks[i];
  for (uint i = lane; i < C; i += gl_WorkGroupSize.x) {
    prepared[record + HH_CHUNK_FADE(C, R) + i] = accurate_exp(G[i].x + G[i].y);
    prepared[record + HH_CHUNK_FADE(C, R) + C + i] = decay(G[C - 1], G[i]);
  }
}
