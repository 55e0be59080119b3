#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The (gated) delta rule token by token (Yang et al. 2024; N > 1: DeltaProduct, Siems et al. 2025; R > 1: Head-in-Head,
// with N = 1). Per value head, S is R blocks of D rows; with R = 1, M is 1:
//   S <- e^g S;  N times: u_a = beta (v - sum_b M_ab k_b S_b), S_a <- S_a + k_a^T u_a;  o = scale sum_b q_b S_b
// The last step's output needs no second pass over S:  q_b S_b = q_b S_b before + (q_b k_b^T) u_b.
// qkv (T, H R D + N H R D + N Hv Dv), beta (T, N Hv), g (T, Hv), mask (T or 1, Hv R R), state (slots, Hv, R D, Dv), o
// (T, Hv Dv). Workgroups (ceil(Dv / COLUMNS), Hv, B): COLUMNS value columns of one head of one sequence, all its
// tokens. Every block is cut into SUB parts of rows. An invocation keeps PER parts of one column of S in registers; the
// parts' k S, q S and q k^T are added through shared memory, with one barrier per step. q, k, v and the masks, computed
// here from their logits, are staged for BLOCK tokens, so that the mask needs no dispatch of its own. Any D, R, Dv, N,
// T.
#include "delta_rule.h"
layout(local_size_x_id = DELTA_RULE_SPEC_LANES) in;
layout(constant_id = DELTA_RULE_SPEC_D) const uint D = 64;
layout(constant_id = DELTA_RULE_SPEC_R) const uint R = 1;
layout(constant_id = DELTA_RULE_SPEC_N) const uint N = 1;
layout(constant_id = DELTA_RULE_SPEC_COLUMNS) const uint COLUMNS = 32;
layout(constant_id = DELTA_RULE_SPEC_SUB) const uint SUB = 2;
layout(constant_id = DELTA_RULE_SPEC_PER) const uint PER = 1;
layout(constant_id = DELTA_RULE_SPEC_BLOCK) const uint BLOCK = 8;
layout(constant_id = DELTA_RULE_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = DELTA_RULE_SPEC_NONNEG) const uint NONNEG = HH_GIVEN;
layout(set = 0, binding = DELTA_RULE_O) writeonly buffer o_block { float o[]; };
layout(set = 0, binding = DELTA_RULE_QKV) readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = DELTA_RULE_QKV) readonly buffer qkv4_block { vec4 qkv4[]; };
layout(set = 0, binding = DELTA_RULE_BETA) readonly buffer beta_block { float beta[]; };
layout(set = 0, binding = DELTA_RULE_G) readonly buffer g_block { float g[]; };
layout(set = 0, binding = DELTA_RULE_MASK) readonly buffer mask_block { float mask[]; };
layout(set = 0, binding = DELTA_RULE_STATE) buffer state_block { float state[]; };
layout(set = 0, binding = DELTA_RULE_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
#include "hh_mask.glsl"

const uint DK = R * D;
const uint PIECE4 = ((D + SUB - 1) / SUB + 3) / 4; // vec4 of a column's rows in one part
const uint PIECES = R * SUB;
const uint SPLIT = PIECES / PER;    // invocations that share a column
const uint HEAD4 = PIECES * PIECE4; // vec4 of a padded key
const uint OWN4 = PER * PIECE4;     // vec4 of an invocation
const uint R4 = (R + 3) / 4;
const uint VECTORS = N + 1; // vectors of a token: k of each step, then q
shared vec4 heads[BLOCK * VECTORS * HEAD4];
shared float values[BLOCK * N * COLUMNS];
shared float betas[BLOCK * N];
shared float decays[BLOCK];
shared float roots[R > 1 ? BLOCK * R * R : 1];            // hh_mask.glsl's N
shared vec4 masks[R > 1 ? BLOCK * R * R4 : 1];            // rows of M, zeros past R
shared vec4 partial[SPLIT > 1 ? 2 * PIECES * COLUMNS : 1]; // k S, q S, q k^T of a part; two buffers, used in turn

// The row of the head at which vec4 `i` of a padded key begins; its rows end with the block's.
uint row_of(uint i) { return R == 1 ? i * 4 : i / (SUB * PIECE4) * D + i % (SUB * PIECE4) * 4; }
uint rows_of(uint i) {
  uint row = R == 1 ? i * 4 : i % (SUB * PIECE4) * 4;
  return min(4, max(D, row) - row);
}

vec4 load4(uint from, uint i) {
  uint at = from + row_of(i), n = rows_of(i);
  if (n == 0) return vec4(0.0);
  if (ALIGNED != 0) return qkv4[at / 4];
  return vec4(qkv[at], n > 1 ? qkv[at + 1] : 0.0, n > 2 ? qkv[at + 2] : 0.0, n > 3 ? qkv[at + 3] : 0.0);
}

// Stages the masks of tokens row ... row + count - 1.
void stage_masks(uint lane, uint row, uint count, uint head) {
  if (NONNEG != HH_GIVEN) {
    for (uint i = lane; i < count * R; i += gl_WorkGroupSize.x) {
      float root[R];
      mask_row((row + i / R) * args.mask_stride + (head * R + i % R) * R, root);
      [[unroll]] for (uint b = 0; b < R; b++) roots[i * R + b] = root[b];
    }
    barrier();
  }
  for (uint i = lane; i < count * R * R4; i += gl_WorkGroupSize.x) {
    uint t = i / (R * R4), a = i / R4 % R, b0 = i % R4 * 4;
    uint from = (row + t) * args.mask_stride + (head * R + a) * R;
    vec4 M = vec4(0.0);
    [[unroll]] for (uint e = 0; e < 4; e++) {
      if (b0 + e >= R) continue;
      if (NONNEG == HH_GIVEN) {
        M[e] = mask[from + b0 + e];
      } else {
        [[unroll]] for (uint c = 0; c < R; c++) M[e] += roots[(t * R + a) * R + c] * roots[(t * R + b0 + e) * R + c];
      }
    }
    masks[i] = M;
  }
}

// Stages tokens row ... row + count - 1 of this head in shared memory.
void stage(uint lane, uint row, uint count, uint head, uint column0) {
  uint key_head = head / args.share % args.H;
  for (uint i = lane; i < count * VECTORS * HEAD4; i += gl_WorkGroupSize.x) {
    uint t = i / (VECTORS * HEAD4), m = i / HEAD4 % VECTORS;
    uint from = (row + t) * args.qkv_stride + ((m == N ? 0 : (m + 1) * args.H) + key_head) * DK;
    heads[i] = load4(from, i % HEAD4);
  }
  for (uint i = lane; i < count * N * COLUMNS; i += gl_WorkGroupSize.x) {
    uint t = i / (N * COLUMNS), m = i / COLUMNS % N, c = column0 + i % COLUMNS;
    uint from = (row + t) * args.qkv_stride + VECTORS * args.H * DK + (m * args.Hv + head) * args.Dv;
    values[i] = c < args.Dv ? qkv[from + c] : 0.0;
  }
  for (uint i = lane; i < count * N; i += gl_WorkGroupSize.x)
    betas[i] = beta[(row + i / N) * args.beta_stride + i % N * args.Hv + head];
  for (uint i = lane; i < count; i += gl_WorkGroupSize.x)
    decays[i] = args.gated != 0 ? accurate_exp(g[(row + i) * args.g_stride + head]) : 1.0;
  if (R > 1) stage_masks(lane, row, count, head);
}

// sum_b M_ab y_b of token t
float masked(uint t, uint a, vec4 y[R4]) {
  if (R == 1) return y[0].x;
  float sum = 0.0;
  [[unroll]] for (uint b = 0; b < R4; b++) sum += dot(masks[(t * R + a) * R4 + b], y[b]);
  return sum;
}

void main() {
  uint lane = gl_LocalInvocationID.x;
  sequence s = sequences[gl_WorkGroupID.z];
  uint head = gl_WorkGroupID.y;
  uint column0 = gl_WorkGroupID.x * COLUMNS, column = lane % COLUMNS, part = SPLIT > 1 ? lane / COLUMNS : 0;
  bool inside = column0 + column < args.Dv;
  uint state_at = s.slot * args.state_stride + head * DK * args.Dv + column0 + column;

  vec4 S[OWN4];
  [[unroll]] for (uint i = 0; i < OWN4; i++) {
    uint row = row_of(part * OWN4 + i), rows = inside ? rows_of(part * OWN4 + i) : 0;
    [[unroll]] for (uint e = 0; e < 4; e++) S[i][e] = e < rows ? state[state_at + (row + e) * args.Dv] : 0.0;
  }

  uint turn = 0;
  for (uint t0 = 0; t0 < s.T; t0 += BLOCK) {
    uint count = min(BLOCK, s.T - t0);
    barrier();
    stage(lane, s.row + t0, count, head, column0);
    barrier();
    for (uint t = 0; t < count; t++) {
      float result = 0.0;
      for (uint m = 0; m < N; m++) {
        uint k_at = (t * VECTORS + m) * HEAD4 + part * OWN4, q_at = (t * VECTORS + N) * HEAD4 + part * OWN4;
        vec4 k[OWN4];
        vec3 own[PER]; // k S, q S, q k^T of a part
        [[unroll]] for (uint p = 0; p < PER; p++) {
          vec4 kS = vec4(0.0), qS = vec4(0.0), qk = vec4(0.0);
          [[unroll]] for (uint i = 0; i < PIECE4; i++) {
            k[p * PIECE4 + i] = heads[k_at + p * PIECE4 + i];
            kS += k[p * PIECE4 + i] * S[p * PIECE4 + i];
          }
          if (m == N - 1) {
            [[unroll]] for (uint i = 0; i < PIECE4; i++) {
              vec4 q = heads[q_at + p * PIECE4 + i];
              qS += q * S[p * PIECE4 + i];
              qk += q * k[p * PIECE4 + i];
            }
          }
          own[p] = vec3(dot(kS, vec4(1.0)), dot(qS, vec4(1.0)), dot(qk, vec4(1.0)));
        }

        uint base = turn * PIECES * COLUMNS + column;
        if (SPLIT > 1) {
          turn ^= 1;
          [[unroll]] for (uint p = 0; p < PER; p++) partial[base + (part * PER + p) * COLUMNS] = vec4(own[p], 0.0);
          barrier();
        }
        vec4 y[R4]; // of each block
        float qk[R], qS = 0.0;
        [[unroll]] for (uint b = 0; b < R4; b++) y[b] = vec4(0.0);
        [[unroll]] for (uint b = 0; b < R; b++) {
          vec3 sums = SPLIT > 1 ? vec3(0.0) : own[min(b, PER - 1)];
          if (SPLIT > 1) {
            [[unroll]] for (uint i = 0; i < SUB; i++) sums += partial[base + (b * SUB + i) * COLUMNS].xyz;
          }
          y[b / 4][b % 4] = sums.x;
          qS += sums.y;
          qk[b] = sums.z;
        }

        float decay = m == 0 ? decays[t] : 1.0, strength = betas[t * N + m];
        float value = values[(t * N + m) * COLUMNS + column];
        [[unroll]] for (uint p = 0; p < PER; p++) {
          float u = strength * (value - decay * masked(t, (part * PER + p) / SUB, y));
          [[unroll]] for (uint i = 0; i < PIECE4; i++)
            S[p * PIECE4 + i] = decay * S[p * PIECE4 + i] + k[p * PIECE4 + i] * u;
        }
        result = decay * qS;
        if (R == 1 || part == 0) {
          [[unroll]] for (uint a = 0; a < R; a++) result += qk[a] * (strength * (value - decay * masked(t, a, y)));
        }
      }
      if (inside && part == 0)
        o[(s.row + t0 + t) * args.o_stride + head * args.Dv + column0 + column] = args.scale * result;
    }
  }

  [[unroll]] for (uint i = 0; i < OWN4; i++) {
    uint row = row_of(part * OWN4 + i), rows = inside ? rows_of(part * OWN4 + i) : 0;
    [[unroll]] for (uint e = 0; e < 4; e++) if (e < rows) state[state_at + (row + e) * args.Dv] = S[i][e];
  }
}
