#version 450
#extension GL_GOOGLE_include_directive : require
// dbeta of the steps whose beta is small, which rule_matrix_grads leaves out: V' and Z have the factor beta, and lose
// their digits in f16. Without that factor, with D_ij = e^(G_i - G_j) and s the scale,
//   e_t  = v_t - e^G_t S^T k_t - sum_{j<t} D_tj (k_t.k_j) V'_j
//   du_t = e^(Gn - G_t) dS^T k_t + sum_{j>=t} D_jt (s (q_j.k_t) dO_j - [j > t] (k_j.k_t) Z_j)
//   dbeta_t += e_t.du_t
// Workgroups (Hv, blocks). Where no beta is small they end at once.
#include "rule_matrix.h"
layout(local_size_x_id = RULE_MATRIX_SPEC_LANES) in;
layout(constant_id = RULE_MATRIX_SPEC_LANES) const uint LANES = 64;
layout(constant_id = RULE_MATRIX_SPEC_BLOCK) const uint BLOCK = 64;
layout(constant_id = RULE_MATRIX_SPEC_DK) const uint DK = 128;
layout(constant_id = RULE_MATRIX_SPEC_DV) const uint DV = 128;
layout(constant_id = RULE_MATRIX_SPEC_N) const uint N = 1;
layout(set = 0, binding = RULE_MATRIX_ROWS) restrict readonly buffer rows_block { uint rows[]; };
layout(set = 0, binding = RULE_MATRIX_STATES) restrict readonly buffer states_block { uint states[]; };
layout(set = 0, binding = RULE_MATRIX_SMALL_GATES) restrict readonly buffer gates_block { float gates[]; };
layout(set = 0, binding = RULE_MATRIX_SMALL_QKV) restrict readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = RULE_MATRIX_SMALL_DBETA) restrict buffer dbeta_block { float dbeta[]; };
#include "rule_matrix_block.glsl"

const uint K2 = DK / 2, V2 = DV / 2;
shared float betas[BLOCK], decays[BLOCK], sums[BLOCK]; // sums: G
shared vec2 key[K2];                                   // k_t
shared float before[BLOCK];                            // factor of V'_j
shared vec2 after[BLOCK];                              // factors of dO_j and Z_j
shared float parts[LANES];

shared uint any_small;

uint lane, row2;
uint q_at, k_at, v_at, do_at, z_at, s_at, ds_at; // of the block, in units of two numbers

vec2 two(uint at, uint j, uint i) { return unpackHalf2x16(rows[at + j * row2 + i]); }
vec2 state(uint at, uint d, uint i) {
  return unpackHalf2x16(states[at + (d / 16 * (DV / 16) + i / 8) * 128 + d % 16 * 8 + i % 8]);
}

// Whether the block has a small beta.
bool make_betas(uint block, uint head) {
  bool small = false;
  if (lane == 0) any_small = 0;
  barrier();
  for (uint r = lane; r < BLOCK; r += LANES) {
    betas[r] = gates[(block * BLOCK + r) * args.Hv + head];
    small = small || abs(betas[r]) < RULE_MATRIX_SMALL_BETA;
  }
  if (small) any_small = 1;
  barrier();
  return any_small != 0;
}

void make_gates(uint block, uint head) {
  for (uint r = lane; r < BLOCK; r += LANES) // e^-104 is about the smallest f32
    decays[r] = max(gates[args.g_at + (block * BLOCK + r) * args.Hv + head], -110.0);
  barrier();
  for (uint r = lane; r < BLOCK; r += LANES) {
    float sum = 0.0;
    for (uint j = 0; j <= r; j++) sum += decays[j];
    sums[r] = sum;
  }
  barrier();
}

// What the other steps of the block have to do with step t. factor: of dO.
void make_factors(uint t, float factor) {
  for (uint i = lane; i < K2; i += LANES) key[i] = two(k_at, t, i);
  barrier();
  for (uint j = lane; j < BLOCK; j += LANES) {
    float kk = 0.0, qk = 0.0;
    for (uint i = 0; i < K2; i++) {
      kk += dot(key[i], two(k_at, j, i));
      qk += dot(key[i], two(q_at, j, i));
    }
    const float decay = exp(j < t ? sums[t] - sums[j] : sums[j] - sums[t]);
    before[j] = decay * kk;
    after[j] = vec2(args.scale * factor * decay * qk, j > t ? decay * kk : 0.0);
  }
  barrier();
}

// The invocation's part of e_t.du_t. values_at: of v_t in qkv.
float multiply(uint t, uint values_at) {
  float sum = 0.0;
  for (uint c = lane; c < V2; c += LANES) {
    vec2 read = vec2(0.0), wanted = vec2(0.0); // S^T k, dS^T k
    for (uint i = 0; i < K2; i++) {
      read += key[i].x * state(s_at, 2 * i, c) + key[i].y * state(s_at, 2 * i + 1, c);
      wanted += key[i].x * state(ds_at, 2 * i, c) + key[i].y * state(ds_at, 2 * i + 1, c);
    }
    vec2 e = -exp(sums[t]) * read, du = exp(sums[BLOCK - 1] - sums[t]) * wanted;
    for (uint j = 0; j < t; j++) e -= before[j] * two(v_at, j, c);
    for (uint j = t; j < BLOCK; j++) du += after[j].x * two(do_at, j, c) - after[j].y * two(z_at, j, c);
    for (uint i = 0; i < 2; i++)
      if (2 * c + i < args.Dv) sum += (qkv[values_at + 2 * c + i] + e[i]) * du[i];
  }
  return sum;
}

void main() {
  const uint head = gl_WorkGroupID.x, block = gl_WorkGroupID.y, key_head = head / args.share % args.H;
  lane = gl_LocalInvocationIndex;
  if (!make_betas(block, head) || !find_block(block)) return;
  row2 = RULE_MATRIX_ROW(args.H, args.Hv, DK, DV) / 2;
  q_at = block * BLOCK * row2 + key_head * K2;
  k_at = q_at + args.H * K2;
  v_at = block * BLOCK * row2 + 2 * args.H * K2 + head * V2;
  do_at = v_at + args.Hv * V2;
  z_at = do_at + args.Hv * V2;
  s_at = (block * args.Hv + head) * 2 * DK * V2;
  ds_at = s_at + DK * V2;
  float least = 126.0; // Z and dS have the sequence's factor of dO, dO the block's
  for (uint b = 0; b < block_count; b++)
    least = min(least, gates[args.scales_at + (first + b) * args.Hv + head]);
  const float factor = ldexp(1.0, int(max(least - gates[args.scales_at + block * args.Hv + head], -126.0)));
  make_gates(block, head);
  for (uint r = 0; r < BLOCK; r++) {
    const uint t = (step0 + r) / N, m = (step0 + r) % N;
    if (t >= T || abs(betas[r]) >= RULE_MATRIX_SMALL_BETA) continue;
    make_factors(r, factor);
    const uint v_from = (1 + N) * args.H * args.Dk + (m * args.Hv + head) * args.Dv;
    parts[lane] = multiply(r, (row + t) * args.qkv_stride + v_from);
    barrier();
    if (lane == 0) {
      float sum = 0.0;
      for (uint i = 0; i < LANES; i++) sum += parts[i];
      dbeta[(row + t) * args.beta_stride + m * args.Hv + head] += ldexp(1.0, -int(least)) * sum;
    }
  }
}
