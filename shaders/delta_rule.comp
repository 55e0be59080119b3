#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The (gated) delta rule token by token (Yang et al. 2024; n > 1: DeltaProduct, Siems et al. 2025). Per value head:
//   S <- e^g S;  n times: u = beta (v - k S), S <- S + k^T u;  o = scale q S
// The last step's output needs no second look at S:  q S = q S_before + (q k^T) u.
// qkv (T, H Dk + n H Dk + n Hv Dv), beta (T, n Hv), g (T, Hv), state (slots, Hv, Dk, Dv), o (T, Hv Dv).
// Workgroups (ceil(Dv / COLUMNS), Hv, B): COLUMNS value columns of one head of one sequence, all its tokens. An
// invocation keeps ROWS rows of one column of S in registers; SPLIT of them share a column and add up k S and q S
// through shared memory, one barrier a step. q, k, v of BLOCK tokens are staged. Any Dk, Dv, n, T.
#include "delta_rule.h"
layout(local_size_x_id = DELTA_RULE_SPEC_LANES) in;
layout(constant_id = DELTA_RULE_SPEC_DK) const uint DK = 64;
layout(constant_id = DELTA_RULE_SPEC_N) const uint N = 1;
layout(constant_id = DELTA_RULE_SPEC_COLUMNS) const uint COLUMNS = 32;
layout(constant_id = DELTA_RULE_SPEC_SPLIT) const uint SPLIT = 2;
layout(constant_id = DELTA_RULE_SPEC_BLOCK) const uint BLOCK = 8;
layout(constant_id = DELTA_RULE_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(set = 0, binding = DELTA_RULE_O) writeonly buffer o_block { float o[]; };
layout(set = 0, binding = DELTA_RULE_QKV) readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = DELTA_RULE_QKV) readonly buffer qkv4_block { vec4 qkv4[]; };
layout(set = 0, binding = DELTA_RULE_BETA) readonly buffer beta_block { float beta[]; };
layout(set = 0, binding = DELTA_RULE_G) readonly buffer g_block { float g[]; };
layout(set = 0, binding = DELTA_RULE_STATE) buffer state_block { float state[]; };
layout(set = 0, binding = DELTA_RULE_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };
#include "accurate.glsl"

const uint ROWS4 = ((DK + SPLIT - 1) / SPLIT + 3) / 4; // vec4 of a column's rows in one invocation
const uint DK4 = ROWS4 * SPLIT;                        // of a padded key
const uint VECTORS = N + 1;                            // of a token: the k of each step, then q
shared vec4 heads[BLOCK * VECTORS * DK4];
shared float values[BLOCK * N * COLUMNS];
shared float betas[BLOCK * N];
shared float decays[BLOCK];
shared vec4 partial[2 * SPLIT * COLUMNS]; // k S, q S, q k^T of a part of the rows; two of them, used in turn

vec4 load4(uint i, uint d) {
  if (d >= DK) return vec4(0.0);
  if (ALIGNED != 0) return qkv4[(i + d) / 4];
  uint left = DK - d;
  i += d;
  return vec4(qkv[i], left > 1 ? qkv[i + 1] : 0.0, left > 2 ? qkv[i + 2] : 0.0, left > 3 ? qkv[i + 3] : 0.0);
}

// Tokens row ... row + count - 1 of this head into shared memory.
void stage(uint lane, uint row, uint count, uint head, uint column0) {
  uint key_head = head / (args.Hv / args.H);
  for (uint i = lane; i < count * VECTORS * DK4; i += gl_WorkGroupSize.x) {
    uint t = i / (VECTORS * DK4), m = i / DK4 % VECTORS;
    uint from = (row + t) * args.qkv_stride + ((m == N ? 0 : (m + 1) * args.H) + key_head) * DK;
    heads[i] = load4(from, i % DK4 * 4);
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
}

void main() {
  uint lane = gl_LocalInvocationID.x;
  sequence s = sequences[gl_WorkGroupID.z];
  uint head = gl_WorkGroupID.y;
  uint column0 = gl_WorkGroupID.x * COLUMNS, column = lane % COLUMNS, part = lane / COLUMNS;
  bool inside = column0 + column < args.Dv;
  uint state_at = s.slot * args.state_stride + head * DK * args.Dv + column0 + column;

  vec4 S[ROWS4];
  [[unroll]] for (uint r = 0; r < ROWS4; r++) {
    [[unroll]] for (uint i = 0; i < 4; i++) {
      uint row = (part * ROWS4 + r) * 4 + i;
      S[r][i] = inside && row < DK ? state[state_at + row * args.Dv] : 0.0;
    }
  }

  uint turn = 0;
  for (uint t0 = 0; t0 < s.T; t0 += BLOCK) {
    uint count = min(BLOCK, s.T - t0);
    barrier();
    stage(lane, s.row + t0, count, head, column0);
    barrier();
    for (uint t = 0; t < count; t++) {
      float y = 0.0;
      for (uint m = 0; m < N; m++) {
        uint k_at = (t * VECTORS + m) * DK4 + part * ROWS4, q_at = (t * VECTORS + N) * DK4 + part * ROWS4;
        float decay = m == 0 ? decays[t] : 1.0;
        vec4 k[ROWS4];
        vec4 kS = vec4(0.0), qS = vec4(0.0), qk = vec4(0.0);
        [[unroll]] for (uint r = 0; r < ROWS4; r++) {
          k[r] = heads[k_at + r];
          kS += k[r] * S[r];
        }
        if (m == N - 1) {
          [[unroll]] for (uint r = 0; r < ROWS4; r++) {
            vec4 q = heads[q_at + r];
            qS += q * S[r];
            qk += q * k[r];
          }
        }
        vec3 sums = vec3(dot(kS, vec4(1.0)), dot(qS, vec4(1.0)), dot(qk, vec4(1.0)));
        if (SPLIT > 1) {
          uint base = turn * SPLIT * COLUMNS + column;
          turn ^= 1;
          partial[base + part * COLUMNS] = vec4(sums, 0.0);
          barrier();
          sums = vec3(0.0);
          [[unroll]] for (uint p = 0; p < SPLIT; p++) sums += partial[base + p * COLUMNS].xyz;
        }
        float u = betas[t * N + m] * (values[(t * N + m) * COLUMNS + column] - decay * sums.x);
        [[unroll]] for (uint r = 0; r < ROWS4; r++) S[r] = decay * S[r] + k[r] * u;
        y = decay * sums.y + sums.z * u;
      }
      if (inside && part == 0) o[(s.row + t0 + t) * args.o_stride + head * args.Dv + column0 + column] = args.scale * y;
    }
  }

  [[unroll]] for (uint r = 0; r < ROWS4; r++) {
    [[unroll]] for (uint i = 0; i < 4; i++) {
      uint row = (part * ROWS4 + r) * 4 + i;
      if (inside && row < DK) state[state_at + row * args.Dv] = S[r][i];
    }
  }
}
