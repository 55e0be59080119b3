#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_shuffle : require
// The part of the chunkwise Head-in-Head rule that needs no state, on cooperative matrices (coopmat; docs/mixers.md;
// output: hh_matrix.h). With n, i tokens of a chunk, a, b blocks of D elements,
//   A[(n,a),(i,b)] = beta_n M^n_ab (k^n_b . k^i_b) e^(G_n - G_i), i < n
//   W = (I + A)^-1 (-beta e^G M | beta)^T      P[n,(i,b)] = scale (q^n_b . k^i_b) e^(G_n - G_i), i <= n
// Products are f16 x f16 -> f32, all of K and Q with K's blocks. Masks and the solution are f32. A is never formed,
// since M is the same for all i. An invocation owns a column of W and keeps R unknowns of a token in registers:
//   y_b = sum_i beta_n (k^n_b . k^i_b) e^(G_n - G_i) x_(i,b),  x_(n,a) = w_(n,a) - sum_b M^n_ab y_b
// qkv (T, 2 H R D + Hv Dv), beta, g (T, Hv), mask (T or 1, Hv R R). Any D, R, H, Hv.
#include "hh_matrix_prepare.h"
layout(local_size_x_id = HH_MATRIX_PREPARE_SPEC_LANES) in;
layout(constant_id = HH_MATRIX_PREPARE_SPEC_LANES) const uint LANES = 96;
layout(constant_id = HH_MATRIX_PREPARE_SPEC_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = HH_MATRIX_PREPARE_SPEC_TILE_M) const uint TILE_M = 16;
layout(constant_id = HH_MATRIX_PREPARE_SPEC_TILE_N) const uint TILE_N = 16;
layout(constant_id = HH_MATRIX_PREPARE_SPEC_TILE_K) const uint TILE_K = 16;
layout(constant_id = HH_MATRIX_PREPARE_SPEC_C) const uint C = 64;
layout(constant_id = HH_MATRIX_PREPARE_SPEC_DK) const uint DK = 128;
layout(constant_id = HH_MATRIX_PREPARE_SPEC_R) const uint R = 4;
layout(constant_id = HH_MATRIX_PREPARE_SPEC_D) const uint D = 32;
layout(constant_id = HH_MATRIX_PREPARE_SPEC_SLAB) const uint SLAB = 128;
layout(constant_id = HH_MATRIX_PREPARE_SPEC_UNIT) const uint UNIT = 8;
layout(constant_id = HH_MATRIX_PREPARE_SPEC_NONNEG) const uint NONNEG = HH_GIVEN;
layout(set = 0, binding = DELTA_MATRIX_PREPARE_PREPARED) restrict writeonly buffer prepared_block { uvec4 prepared[]; };
layout(set = 0, binding = DELTA_MATRIX_PREPARE_BETA) restrict readonly buffer beta_block { float beta[]; };
layout(set = 0, binding = DELTA_MATRIX_PREPARE_G) restrict readonly buffer g_block { float g[]; };
layout(set = 0, binding = HH_MATRIX_PREPARE_MASK) restrict readonly buffer mask_block { float mask[]; };
layout(set = 0, binding = DELTA_MATRIX_PREPARE_SEQUENCES) restrict readonly buffer sequences_block {
  sequence sequences[];
};
#define QKV_BINDING DELTA_MATRIX_PREPARE_QKV
#include "delta_matrix_load.glsl"
#include "hh_mask.glsl"

const uint N = 1, TOKENS = C / R, STEPS = TOKENS;
const uint QUERIES = DELTA_MATRIX_QUERIES(C, R);
const uint KEY = R * D;
const uint ALONE = HH_MATRIX_ALONE(C, R, D);
const bool EDGES = KEY != DK || DK % SLAB != 0;
const uint LEFTS = 2 * QUERIES; // rows of K, then of Q; then K's blocks
const uint ROWS = LEFTS + ALONE;
const uint SLAB8 = SLAB / 8, PITCH = SLAB8 + 1; // uvec4 of a staged row; the extra one spreads rows over banks
const uint F_PITCH = C / 4 + 1;
const uint C8 = C / 8, R4 = (R + 3) / 4;
const uint SUBGROUPS = LANES / SUBGROUP;
const uint JOBS = LEFTS / TILE_M * (C / TILE_N), JOBS_EACH = (JOBS + SUBGROUPS - 1) / SUBGROUPS; // tiles of products
const uint PAIRS = TOKENS * TOKENS * R4;
// K and Q; then beta_n (k^n_b . k^i_b) e^(G_n - G_i) of all n, i, with its R blocks adjacent.
shared uvec4 staged[PAIRS > ROWS * PITCH ? PAIRS : ROWS * PITCH];
shared vec4 products[LEFTS * F_PITCH];
shared vec4 masks[TOKENS * R * R4];                          // M, rows of R
shared vec4 roots[NONNEG == HH_GIVEN ? 1 : TOKENS * R * R4]; // N, from which M is computed
#include "delta_matrix_chunk.glsl"
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, TILE_K, TILE_N, gl_MatrixUseB>
#define SUM coopmat<float, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
// Whether columns x ... of a key and steps j ... have a block in common.
#define HOLDS(j, x) (((j) + TILE_N - 1) / TOKENS >= (x) / D && (j) / TOKENS <= ((x) + TILE_K - 1) / D)

uvec4 load8_of(uint at, uint d) {
  return finish8_of(fetch8_of(at, d, args.pitch, UNIT, EDGES), at, d, args.pitch, UNIT, EDGES);
}

// Keeps those of elements d ... d + 7 that are in block b; zeros for the others.
uvec4 only_block(uvec4 x, uint d, uint b) {
  [[unroll]] for (uint i = 0; i < 4; i++) {
    x[i] &= (d + 2 * i) / D == b ? 0xffffffff : 0xffff0000;
    x[i] &= (d + 2 * i + 1) / D == b ? 0xffffffff : 0xffff;
  }
  return x;
}

// Stages columns d0 ... of the rows. Tokens past the end have any token's data: their beta is 0, and nothing reads
// their part of P.
void stage(uint lane, uint key_head, uint d0) {
  [[unroll]] for (uint i0 = 0; i0 < ROWS * SLAB8; i0 += LANES) {
    uint i = i0 + lane, r = i / SLAB8, d = d0 + i % SLAB8 * 8, j = r - LEFTS;
    if (ROWS * SLAB8 % LANES == 0 || i < ROWS * SLAB8) {
      uint t = r < LEFTS ? r % QUERIES : j % TOKENS;
      uint at = (row + min(t, count - 1)) * args.qkv_stride + key_head * args.pitch;
      uvec4 x = load8_of(r >= QUERIES && r < LEFTS ? at : at + args.H * args.pitch, d);
      staged[r * PITCH + i % SLAB8] = ALONE == 0 || r < LEFTS ? x : only_block(x, d, j / TOKENS);
    }
  }
}

// Loads M, or the rows of N from which it is computed.
void load_masks(uint lane, uint head) {
  for (uint i = lane; i < TOKENS * R; i += LANES) {
    uint from = (row + min(i / R, count - 1)) * args.mask_stride + (head * R + i % R) * R;
    if (NONNEG == HH_GIVEN) {
      [[unroll]] for (uint b = 0; b < R; b++) masks[i * R4 + b / 4][b % 4] = mask[from + b];
    } else {
      float N[R];
      mask_row(from, N);
      [[unroll]] for (uint b = 0; b < R; b++) roots[i * R4 + b / 4][b % 4] = N[b];
    }
  }
}

void make_masks(uint lane) {
  for (uint i = lane; i < TOKENS * R * R; i += LANES) {
    uint a = i / R, b = i / (R * R) * R + i % R;
    float M = 0.0;
    [[unroll]] for (uint c = 0; c < R; c++) M += roots[a * R4 + c / 4][c % 4] * roots[b * R4 + c / 4][c % 4];
    masks[a * R4 + i % R / 4][i % R % 4] = M;
  }
}

// Writes P to its record, and the part of A that x needs in place of K and Q.
void weigh(uint lane) {
  for (uint i = lane; i < QUERIES * C8; i += LANES) {
    uint t = i / C8, c = i % C8 * 8, at = (QUERIES + t) * F_PITCH + c / 4;
    float p[8];
    [[unroll]] for (uint j = 0; j < 8; j++) {
      uint from = (c + j) % TOKENS;
      bool seen = from <= t && t < TOKENS && c + j < R * TOKENS;
      p[j] = seen ? args.scale * products[at + j / 4][j % 4] * exp(G[t] - G[from]) : 0.0;
    }
    uvec4 x;
    [[unroll]] for (uint j = 0; j < 4; j++) x[j] = packHalf2x16(vec2(p[2 * j], p[2 * j + 1]));
    prepared[record + HH_MATRIX_P(C, R) + i] = x;
  }
  for (uint i = lane; i < TOKENS * TOKENS; i += LANES) {
    uint n = i / TOKENS, m = i % TOKENS;
    if (m >= n) continue;
    float by = betas[n] * exp(G[n] - G[m]);
    [[unroll]] for (uint q = 0; q < R4; q++) {
      vec4 pair = vec4(0.0);
      [[unroll]] for (uint b = 0; b < 4; b++) {
        uint c = (4 * q + b) * TOKENS + m;
        if (4 * q + b < R) pair[b] = by * products[n * F_PITCH + c / 4][c % 4];
      }
      staged[i * R4 + q] = floatBitsToUint(pair);
    }
  }
}

// Solves a column of W: for token i and block w of M, or, if w = R, the column that multiplies V.
void solve(uint i, uint w) {
  float own[R], x[C];
  [[unroll]] for (uint a = 0; a < R; a++)
    own[a] = w < R ? -betas[i] * exp(G[i]) * masks[(i * R + a) * R4 + w / 4][w % 4] : betas[i];
  [[unroll]] for (uint j = R * TOKENS; j < C; j++) x[j] = 0.0;
  [[unroll]] for (uint n = 0; n < TOKENS; n++) {
    float y[R];
    [[unroll]] for (uint b = 0; b < R; b++) y[b] = 0.0;
    [[unroll]] for (uint m = 0; m < n; m++)
      [[unroll]] for (uint q = 0; q < R4; q++) {
        vec4 by = uintBitsToFloat(staged[(n * TOKENS + m) * R4 + q]);
        [[unroll]] for (uint b = 4 * q; b < 4 * q + 4; b++)
          if (b < R) y[b] += by[b % 4] * x[b * TOKENS + m];
      }
    [[unroll]] for (uint a = 0; a < R; a++) {
      float sum = n == i ? own[a] : 0.0;
      [[unroll]] for (uint q = 0; q < R4; q++) {
        vec4 M = masks[(n * R + a) * R4 + q];
        [[unroll]] for (uint b = 4 * q; b < 4 * q + 4; b++)
          if (b < R) sum -= M[b % 4] * y[b];
      }
      x[a * TOKENS + n] = sum;
    }
  }
  uint to = record + (w < R ? w * TOKENS + i : C + i) * C8;
  [[unroll]] for (uint k = 0; k < C8; k++) {
    uvec4 h;
    [[unroll]] for (uint j = 0; j < 4; j++) h[j] = packHalf2x16(vec2(x[8 * k + 2 * j], x[8 * k + 2 * j + 1]));
    prepared[to + k] = h;
  }
}

// Writes zeros to unused rows of W, and the decays.
void write_rest(uint lane) {
  const uint above = C - R * TOKENS, rest = above + QUERIES - TOKENS;
  for (uint i = lane; i < rest * C8; i += LANES) {
    uint r = i / C8 < above ? R * TOKENS + i / C8 : C + TOKENS + i / C8 - above;
    prepared[record + r * C8 + i % C8] = uvec4(0);
  }
  for (uint i = lane; i < (2 * C + QUERIES) / 4; i += LANES) {
    vec4 fade;
    [[unroll]] for (uint k = 0; k < 4; k++) {
      uint j = 4 * i + k;
      fade[k] = j < C       ? exp(G[TOKENS - 1])
                : j < 2 * C ? exp(G[TOKENS - 1] - G[(j - C) % TOKENS])
                            : args.scale * exp(G[min(j - 2 * C, TOKENS - 1)]);
    }
    prepared[record + HH_MATRIX_FADES(C, R) + i] = floatBitsToUint(fade);
  }
}

void main() {
  uint lane = gl_LocalInvocationIndex, head = gl_WorkGroupID.x;
  find_chunk(gl_WorkGroupID.y, HH_MATRIX_RECORD(C, R));
  if (count == 0) return;
  const uint key_head = args.Hv == args.H ? head : head / args.share % args.H;
  fetch_gates(head);
  stage(lane, key_head, 0);
  load_masks(lane, head);
  put_gates();
  SUM sums[JOBS_EACH];
  [[unroll]] for (uint n = 0; n < JOBS_EACH; n++) sums[n] = SUM(0.0);
  for (uint d0 = 0; d0 < DK; d0 += SLAB) {
    if (d0 > 0) {
      barrier();
      stage(lane, key_head, d0);
    }
    barrier();
    [[unroll]] for (uint n = 0; n < JOBS_EACH; n++) {
      uint job = n * SUBGROUPS + gl_SubgroupID, i = job % (LEFTS / TILE_M) * TILE_M;
      uint j = job / (LEFTS / TILE_M) * TILE_N, right_at = ALONE == 0 ? j % TOKENS : LEFTS + j;
      [[unroll]] for (uint x = 0; x < SLAB; x += TILE_K)
        if (HOLDS(j, d0 + x) && (JOBS % SUBGROUPS == 0 || job < JOBS)) {
          LEFT left;
          RIGHT right;
          coopMatLoad(left, staged, i * PITCH + x / 8, PITCH, gl_CooperativeMatrixLayoutRowMajor);
          coopMatLoad(right, staged, right_at * PITCH + x / 8, PITCH, gl_CooperativeMatrixLayoutColumnMajor);
          sums[n] = coopMatMulAdd(left, right, sums[n]);
        }
    }
  }
  [[unroll]] for (uint n = 0; n < JOBS_EACH; n++) {
    uint job = n * SUBGROUPS + gl_SubgroupID, i = job % (LEFTS / TILE_M) * TILE_M, j = job / (LEFTS / TILE_M) * TILE_N;
    if (JOBS % SUBGROUPS == 0 || job < JOBS)
      coopMatStore(sums[n], products, i * F_PITCH + j / 4, F_PITCH, gl_CooperativeMatrixLayoutRowMajor);
  }
  if (NONNEG != HH_GIVEN) make_masks(lane);
  barrier();
  weigh(lane);
  barrier();
  [[unroll]] for (uint c0 = 0; c0 < (R + 1) * TOKENS; c0 += LANES)
    if (c0 + lane < (R + 1) * TOKENS) solve((c0 + lane) / (R + 1), (c0 + lane) % (R + 1));
  write_rest(lane);
}
