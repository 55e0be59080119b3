#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The part of the chunkwise delta rule that needs no state (UT transform, Yang et al. 2024; gates: Gated DeltaNet):
//   A = strictly_lower(diag(beta) K K^T * D)    Tm = (I + A)^-1 diag(beta)    P = lower(scale Q K^T * D)
// with D_ij = e^(G_i - G_j), only computed where i >= j: there it is <= 1, elsewhere it overflows.
// qkv (T, (1 + N) H Dk + N Hv Dv), beta (T, N Hv), g (T, Hv), prepared and N: see delta_chunk.h. Workgroups (chunks,
// Hv): one record each.
// K K^T and Q K^T: SUB x SUB blocks of the lower triangle, one per invocation, with K and Q in shared memory, SLAB
// columns at a time. The inverse: diagonal blocks of 16 by substitution, one invocation per column, then X21 = -X22 A21
// X11 for halves of 16, then 32. The series (I - A)(I + A^2)... cannot be used: for correlated keys its terms overflow
// f32. Any Dk.
#include "delta_chunk_prepare.h"
layout(local_size_x_id = DELTA_CHUNK_PREPARE_SPEC_LANES) in;
layout(constant_id = DELTA_CHUNK_PREPARE_SPEC_C) const uint C = 32;
layout(constant_id = DELTA_CHUNK_PREPARE_SPEC_DK) const uint DK = 64;
layout(constant_id = DELTA_CHUNK_PREPARE_SPEC_SUB) const uint SUB = 4;
layout(constant_id = DELTA_CHUNK_PREPARE_SPEC_SLAB) const uint SLAB = 32;
layout(constant_id = DELTA_CHUNK_PREPARE_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = DELTA_CHUNK_PREPARE_SPEC_N) const uint N = 1;
layout(set = 0, binding = DELTA_CHUNK_PREPARE_PREPARED) writeonly buffer prepared_block { vec4 prepared[]; };
layout(set = 0, binding = DELTA_CHUNK_PREPARE_QKV) readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = DELTA_CHUNK_PREPARE_QKV) readonly buffer qkv4_block { vec4 qkv4[]; };
layout(set = 0, binding = DELTA_CHUNK_PREPARE_BETA) readonly buffer beta_block { float beta[]; };
layout(set = 0, binding = DELTA_CHUNK_PREPARE_G) readonly buffer g_block { float g[]; };
layout(set = 0, binding = DELTA_CHUNK_PREPARE_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
#include "accurate.glsl"

const uint SLAB4 = SLAB / 4;
const uint PITCH = SLAB4 + 1;                       // vec4 of a staged row; the extra one spreads rows over banks
const uint BLOCKS = C / SUB;                        // along a side
const uint LOWER = BLOCKS * (BLOCKS + 1) / 2;       // on and below the diagonal
const uint TOKENS = C / N;
const uint P_ROWS = (TOKENS + SUB - 1) / SUB;       // rows of blocks of P; row i has (i + 1) * N blocks,
const uint P_SLOPE = BLOCKS / N;                    // or all BLOCKS of them from row P_SLOPE on
const uint P_LOWER = P_SLOPE * (P_SLOPE + 1) / 2 * N + (P_ROWS - P_SLOPE) * BLOCKS;
const uint JOBS = LOWER + P_LOWER;                  // of K K^T, then of Q K^T
const uint M_PITCH = C + 1;
const float LOWEST_G = -1e4; // e^-104 is about the smallest f32; sums of this stay finite
shared vec4 tile[2 * C * PITCH]; // rows of K, then of Q; later products of the inverse
shared float M[C * M_PITCH];     // A, which becomes (I + A)^-1
shared float betas[C], decays[C];
shared vec2 G[C]; // the sum and its rounding error

vec4 load4(uint i, uint d) {
  if (d >= DK) return vec4(0.0);
  if (ALIGNED != 0) return qkv4[(i + d) / 4];
  uint left = DK - d;
  i += d;
  return vec4(qkv[i], left > 1 ? qkv[i + 1] : 0.0, left > 2 ? qkv[i + 2] : 0.0, left > 3 ? qkv[i + 3] : 0.0);
}

void stage(uint lane, uint row, uint count, uint key_head, uint d0) {
  for (uint i = lane; i < 2 * C * SLAB4; i += gl_WorkGroupSize.x) {
    uint r = i / SLAB4, t = r < C ? r / N : r - C;
    uint from = (row + t) * args.qkv_stride + ((r < C ? (1 + r % N) * args.H : 0) + key_head) * DK;
    tile[r * PITCH + i % SLAB4] = t < count ? load4(from, d0 + i % SLAB4 * 4) : vec4(0.0);
  }
}

void gates(uint lane, uint row, uint count, uint head) {
  for (uint i = lane; i < C; i += gl_WorkGroupSize.x) {
    uint t = i / N;
    betas[i] = t < count ? beta[(row + t) * args.beta_stride + i % N * args.Hv + head] : 0.0;
    bool decaying = args.gated != 0 && t < count && i % N == 0; // once a token, before its first step
    decays[i] = decaying ? max(g[(row + t) * args.g_stride + head], LOWEST_G) : 0.0;
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

// e^(G_i - G_j) for i >= j, any value for i < j. After one strong decay all later G are large, and without their
// rounding errors the differences would lose precision.
float decay(vec2 G_i, vec2 G_j) {
  precise vec2 d = G_i - G_j;
  return accurate_exp(min(d.x + d.y, 0.0));
}

// Writes the lower triangle of A to M, and that of P, whose row i sees the steps before (i + 1) * N, to the record.
void products(uint lane, uint row, uint count, uint key_head, uint P) {
  for (uint base = 0; base < JOBS; base += gl_WorkGroupSize.x) {
    uint job = base + lane, block = job < LOWER ? job : job - LOWER, steps = job < LOWER ? 1 : N, bi = 0;
    for (uint width = steps; block >= width && bi < BLOCKS; width = min((bi + 1) * steps, BLOCKS)) block -= width, bi++;
    uint left = (job < LOWER ? 0 : C) + bi * SUB, right = block * SUB;
    float sums[SUB * SUB];
    [[unroll]] for (uint i = 0; i < SUB * SUB; i++) sums[i] = 0.0;
    for (uint d0 = 0; d0 < DK; d0 += SLAB) {
      if (base == 0 || DK > SLAB) {
        barrier();
        stage(lane, row, count, key_head, d0);
        barrier();
      }
      if (job < JOBS) {
        for (uint d = 0; d < SLAB4; d++) {
          vec4 a[SUB];
          [[unroll]] for (uint i = 0; i < SUB; i++) a[i] = tile[(left + i) * PITCH + d];
          [[unroll]] for (uint j = 0; j < SUB; j++) {
            vec4 b = tile[(right + j) * PITCH + d];
            [[unroll]] for (uint i = 0; i < SUB; i++) sums[i * SUB + j] += dot(a[i], b);
          }
        }
      }
    }
    if (job < JOBS) {
      vec2 right_G[SUB];
      [[unroll]] for (uint j = 0; j < SUB; j++) right_G[j] = G[right + j];
      [[unroll]] for (uint ii = 0; ii < SUB; ii++) {
        uint i = bi * SUB + ii;
        vec2 left_G = G[min(i * steps, C - 1)];
        float beta_i = betas[i];
        [[unroll]] for (uint jj = 0; jj < SUB; jj += 4) {
          vec4 value;
          [[unroll]] for (uint k = 0; k < 4; k++)
            value[k] = sums[ii * SUB + jj + k] * decay(left_G, right_G[jj + k]);
          uvec4 j = right + jj + uvec4(0, 1, 2, 3);
          if (job >= LOWER) {
            bvec4 seen = lessThan(j, uvec4((i + 1) * N));
            prepared[P + (i * C + right + jj) / 4] = mix(vec4(0.0), args.scale * value, seen);
          } else {
            [[unroll]] for (uint k = 0; k < 4; k++) M[i * M_PITCH + j[k]] = i > j[k] ? beta_i * value[k] : 0.0;
          }
        }
      }
    }
  }
}

// Diagonal blocks of 16: column j of the inverse X solves x_i = [i = j] - sum_{m<i} A_im x_m.
void invert_blocks(uint lane) {
  for (uint base = 0; base < C; base += gl_WorkGroupSize.x) {
    uint column = base + lane, first = column / 16 * 16;
    float x[16];
    if (column < C) {
      [[unroll]] for (uint i = 0; i < 16; i++) {
        float sum = first + i == column ? 1.0 : 0.0;
        [[unroll]] for (uint m = 0; m < i; m++) sum -= M[(first + i) * M_PITCH + first + m] * x[m];
        x[i] = sum;
      }
    }
    barrier(); // the inverse replaces M only after all columns of this round are known
    if (column < C) {
      [[unroll]] for (uint i = 0; i < 16; i++) M[(first + i) * M_PITCH + column] = x[i];
    }
  }
  barrier();
}

// Joins pairs of inverted blocks of half_size rows into inverted blocks of twice that. An invocation computes 4 x 4
// elements. The product A21 X11 is kept in `tile`, in rows of half_size / 4 vec4.
void ladder(uint lane, uint half_size) {
  uint side = half_size / 4, tiles = C / (2 * half_size) * side * side;
  for (uint i = lane; i < tiles; i += gl_WorkGroupSize.x) {
    uint first = i / (side * side) * 2 * half_size, r = i / side % side * 4, c = i % side * 4;
    vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    for (uint m = c; m < half_size; m++) { // X11 is lower triangular
      uint at = (first + m) * M_PITCH + first + c;
      vec4 x = vec4(M[at], M[at + 1], M[at + 2], M[at + 3]);
      [[unroll]] for (uint k = 0; k < 4; k++) sums[k] += M[(first + half_size + r + k) * M_PITCH + first + m] * x;
    }
    [[unroll]] for (uint k = 0; k < 4; k++) tile[(i / (side * side) * half_size + r + k) * side + c / 4] = sums[k];
  }
  barrier();
  for (uint i = lane; i < tiles; i += gl_WorkGroupSize.x) {
    uint first = i / (side * side) * 2 * half_size, r = i / side % side * 4, c = i % side * 4;
    vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    for (uint m = 0; m < r + 4; m++) { // X22 is lower triangular too
      vec4 w = tile[(i / (side * side) * half_size + m) * side + c / 4];
      [[unroll]] for (uint k = 0; k < 4; k++)
        sums[k] -= M[(first + half_size + r + k) * M_PITCH + first + half_size + m] * w;
    }
    [[unroll]] for (uint k = 0; k < 4; k++) {
      [[unroll]] for (uint j = 0; j < 4; j++) M[(first + half_size + r + k) * M_PITCH + first + c + j] = sums[k][j];
    }
  }
  barrier();
}

void main() {
  uint lane = gl_LocalInvocationID.x, head = gl_WorkGroupID.y;
  uint chunk = gl_WorkGroupID.x, z = 0;
  while (z < args.B && chunk >= (sequences[z].T + TOKENS - 1) / TOKENS)
    chunk -= (sequences[z++].T + TOKENS - 1) / TOKENS;
  if (z == args.B) return; // the host assumes a partial chunk at the end of every sequence
  uint row = sequences[z].row + chunk * TOKENS, count = min(TOKENS, sequences[z].T - chunk * TOKENS);

  for (uint i = lane; i < C * M_PITCH; i += gl_WorkGroupSize.x) M[i] = 0.0;
  uint record = (gl_WorkGroupID.x * args.Hv + head) * (DELTA_CHUNK_RECORD(C) / 4);
  gates(lane, row, count, head);
  products(lane, row, count, head / args.share % args.H, record + C * C / 4);
  barrier();
  invert_blocks(lane);
  for (uint half_size = 16; half_size < C; half_size *= 2) ladder(lane, half_size);

  for (uint i = lane; i < C * C / 4; i += gl_WorkGroupSize.x) {
    uint j = i % (C / 4) * 4, at = i / (C / 4) * M_PITCH + j;
    prepared[record + i] =
        vec4(M[at], M[at + 1], M[at + 2], M[at + 3]) * vec4(betas[j], betas[j + 1], betas[j + 2], betas[j + 3]);
    uint bi = i / (C / 4) / SUB; // the part of P that no job computed
    if (j / SUB >= (bi + 1) * N || bi >= P_ROWS) prepared[record + C * C / 4 + i] = vec4(0.0);
  }
  for (uint i = lane; i < C / 4; i += gl_WorkGroupSize.x) {
    vec4 fade_in, fade_out;
    [[unroll]] for (uint k = 0; k < 4; k++) {
      fade_in[k] = accurate_exp(G[4 * i + k].x + G[4 * i + k].y);
      fade_out[k] = decay(G[C - 1], G[4 * i + k]);
    }
    prepared[record + C * C / 2 + i] = fade_in;
    prepared[record + C * C / 2 + C / 4 + i] = fade_out;
  }
}
