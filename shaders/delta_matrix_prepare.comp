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
// The part of the chunkwise delta rule that needs no state, on cooperative matrices (UT transform, Yang et al. 2024;
// gates: Gated DeltaNet; what is written: delta_matrix.h):
//   A = strictly_lower(diag(beta) K K^T * D)    Tm = (I + A)^-1 diag(beta)    P = lower(scale Q K^T * D)
// with D_ij = e^(G_i - G_j), only used where i >= j: there it is <= 1.
// qkv (T, (1 + N) H Dk + N Hv Dv), beta (T, N Hv), g (T, Hv). Workgroups (Hv, chunks): one record each (two, for a
// lane to invert each column of, lost: docs/speed.md). Products are f16 x f16 -> f32; masks and the inverse are f32:
// diagonal blocks of 16 by substitution, then row after row of blocks, X_i = -X_ii (A_i X), to f32's digits. (Never the
// series (I - A)(I + A^2)...: its terms grow beyond f32 for correlated keys.) Any Dk, H, Hv; C / N tokens a chunk.
#include "delta_matrix_prepare.h"
layout(local_size_x_id = DELTA_MATRIX_PREPARE_SPEC_LANES) in;
layout(constant_id = DELTA_MATRIX_PREPARE_SPEC_LANES) const uint LANES = 32;
layout(constant_id = DELTA_MATRIX_PREPARE_SPEC_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = DELTA_MATRIX_PREPARE_SPEC_TILE_M) const uint TILE_M = 16;
layout(constant_id = DELTA_MATRIX_PREPARE_SPEC_TILE_N) const uint TILE_N = 16;
layout(constant_id = DELTA_MATRIX_PREPARE_SPEC_TILE_K) const uint TILE_K = 16;
layout(constant_id = DELTA_MATRIX_PREPARE_SPEC_C) const uint C = 16;
layout(constant_id = DELTA_MATRIX_PREPARE_SPEC_DK) const uint DK = 128;
layout(constant_id = DELTA_MATRIX_PREPARE_SPEC_N) const uint N = 1;
layout(constant_id = DELTA_MATRIX_PREPARE_SPEC_SLAB) const uint SLAB = 128;
layout(constant_id = DELTA_MATRIX_PREPARE_SPEC_UNIT) const uint UNIT = 8;
layout(constant_id = DELTA_MATRIX_PREPARE_SPEC_EDGES) const uint EDGES = 0;
layout(set = 0, binding = DELTA_MATRIX_PREPARE_PREPARED) restrict writeonly buffer prepared_block { uvec4 prepared[]; };
layout(set = 0, binding = DELTA_MATRIX_PREPARE_BETA) restrict readonly buffer beta_block { float beta[]; };
layout(set = 0, binding = DELTA_MATRIX_PREPARE_G) restrict readonly buffer g_block { float g[]; };
layout(set = 0, binding = DELTA_MATRIX_PREPARE_SEQUENCES) restrict readonly buffer sequences_block {
  sequence sequences[];
};
#define QKV_BINDING DELTA_MATRIX_PREPARE_QKV
#include "delta_matrix_load.glsl"

const uint STEPS = C, TOKENS = C / N;
const uint QUERIES = DELTA_MATRIX_QUERIES(C, N);
const uint ROWS = C + QUERIES; // K's, then Q's
const uint SLAB8 = SLAB / 8;
const uint PITCH = SLAB8 + 1; // of a staged row, 16 bytes each; the odd one spreads rows over banks
const uint F_PITCH = C / 4 + 1;
const uint C8 = C / 8;
const uint TILES_C = C / TILE_N;                                    // of columns of the products
const uint SUBGROUPS = LANES / SUBGROUP;
const uint ROWS_EACH = (ROWS / TILE_M + SUBGROUPS - 1) / SUBGROUPS; // rows of tiles that a subgroup makes of a chunk
// When K and Q have gone: the matrix that is inverted (C rows of H_PITCH), and from LOW on what rounding to f16 took
// from it; the same of 16 rows of a product.
const uint H_PITCH = C8 + 1, LOW = C * H_PITCH, WAITING = 2 * LOW;
const uint HALVES = C > 16 ? WAITING + 32 * H_PITCH : 1;
shared uvec4 staged[HALVES > ROWS * PITCH ? HALVES : ROWS * PITCH]; // f16
shared vec4 products[ROWS * F_PITCH]; // A, which becomes its inverse; then Q K^T
shared vec4 fades[(C + ROWS) / 4];     // as in a record
#include "delta_matrix_chunk.glsl"
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, TILE_K, TILE_N, gl_MatrixUseB>
#define SUM coopmat<float, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define SUM16 coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>

uvec4 load8_of(uint row, uint d) {
  return finish8_of(fetch8_of(row, d, args.pitch, UNIT, EDGES != 0), row, d, args.pitch, UNIT, EDGES != 0);
}

// Columns d0 ... of K and Q. Rows past the end are any row's: their beta is 0, and masks keep them out of P.
void stage(uint lane, uint key_head, uint d0) {
  [[unroll]] for (uint i0 = 0; i0 < C * SLAB8; i0 += LANES) {
    uint i = i0 + lane, r = i / SLAB8, t = min(r / N, count - 1);
    if (C * SLAB8 % LANES == 0 || i < C * SLAB8) {
      uint at = (row + t) * args.qkv_stride + ((1 + r % N) * args.H + key_head) * args.pitch;
      staged[r * PITCH + i % SLAB8] = load8_of(at, d0 + i % SLAB8 * 8);
    }
  }
  [[unroll]] for (uint i0 = 0; i0 < QUERIES * SLAB8; i0 += LANES) {
    uint i = i0 + lane, r = i / SLAB8, t = min(r, count - 1);
    if (QUERIES * SLAB8 % LANES == 0 || i < QUERIES * SLAB8) {
      uint at = (row + t) * args.qkv_stride + key_head * args.pitch;
      staged[(C + r) * PITCH + i % SLAB8] = load8_of(at, d0 + i % SLAB8 * 8);
    }
  }
}

// By how much steps c ... c + 3 have faded at `step`; 0 from `end` on.
vec4 faded(uint step, uint c, uint end) {
  vec4 w = vec4(lessThan(uvec4(c, c + 1, c + 2, c + 3), uvec4(end)));
  if (args.gated != 0)
    [[unroll]] for (uint j = 0; j < 4; j++) w[j] = c + j < end ? exp(G[step] - G[c + j]) : 0.0;
  return w;
}

void write_queries(uint i, vec4 low, vec4 high) {
  const uint at = (C + i / C8) * F_PITCH + i % C8 * 2;
  low *= args.scale * products[at];
  high *= args.scale * products[at + 1];
  prepared[record + DELTA_MATRIX_P(C) + i] =
      uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
}

// A becomes strictly lower, P is written: with one step a token their rows have the same factors.
void mask(uint lane) {
  for (uint i = lane; i < C * C8; i += LANES) {
    uint r = i / C8, c = i % C8 * 8, at = r * F_PITCH + c / 4;
    vec4 low = faded(r, c, N == 1 ? r + 1 : r), high = faded(r, c + 4, N == 1 ? r + 1 : r);
    if (N == 1) write_queries(i, low, high);
    low *= betas[r] * products[at];
    high *= betas[r] * products[at + 1];
    [[unroll]] for (uint j = 0; N == 1 && j < 4; j++) {
      low[j] = c + j < r ? low[j] : 0.0;
      high[j] = c + 4 + j < r ? high[j] : 0.0;
    }
    products[at] = low;
    products[at + 1] = high;
  }
  for (uint i = lane; N > 1 && i < QUERIES * C8; i += LANES) {
    uint t = i / C8, c = i % C8 * 8, step = min(t * N, C - 1), end = min((t + 1) * N, C);
    write_queries(i, faded(step, c, end), faded(step, c + 4, end));
  }
}

// Adds a tile's product; its operands begin at `left` and `right` of `staged`, their rests LOW and `low` after.
SUM product(SUM sum, uint left, uint right, uint low) {
  LEFT a, a_rest;
  RIGHT b, b_rest;
  coopMatLoad(a, staged, left, H_PITCH, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(a_rest, staged, left + LOW, H_PITCH, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(b, staged, right, H_PITCH, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(b_rest, staged, right + low, H_PITCH, gl_CooperativeMatrixLayoutRowMajor);
  return coopMatMulAdd(a, b, coopMatMulAdd(a, b_rest, coopMatMulAdd(a_rest, b, sum)));
}

void split(SUM x, uint to, uint low) {
  SUM16 high = SUM16(x);
  coopMatStore(high, staged, to, H_PITCH, gl_CooperativeMatrixLayoutRowMajor);
  coopMatStore(SUM16(x - SUM(high)), staged, to + low, H_PITCH, gl_CooperativeMatrixLayoutRowMajor);
}

// Diagonal blocks: column j of the inverse X solves x_i = [i = j] - sum_{m<i} A_im x_m.
void invert_blocks(uint lane) {
  [[unroll]] for (uint base = 0; base < C; base += LANES) {
    uint column = base + lane, block = column / 16, j = column % 16;
    uint at = block * 16 * F_PITCH + block * 4;
    bool mine = C % LANES == 0 || column < C;
    float x[16];
    if (mine) {
      [[unroll]] for (uint i = 0; i < 16; i++) {
        x[i] = i == j ? 1.0 : 0.0;
        [[unroll]] for (uint m = 0; m < i; m++) x[i] -= products[at + i * F_PITCH + m / 4][m % 4] * x[m];
      }
    }
    barrier(); // all columns of this round are known: A may go
    if (mine) {
      [[unroll]] for (uint i = 0; i < 16; i++) products[at + i * F_PITCH + j / 4][j % 4] = x[i];
    }
  }
  barrier();
}

// Rows of blocks of the inverse, one after the other: X_i = -X_ii (A_i X), of the rows before it. Both operands are f16
// and the rest that rounding left, three products: digits lost here would be lost for good.
void invert_rows(uint lane) {
  for (uint i = lane; i < C * C8; i += LANES) {
    uint at = i / C8 * F_PITCH + i % C8 * 2, to = i / C8 * H_PITCH + i % C8;
    vec4 a = products[at], b = products[at + 1];
    uvec4 high = uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
    a -= vec4(unpackHalf2x16(high.x), unpackHalf2x16(high.y));
    b -= vec4(unpackHalf2x16(high.z), unpackHalf2x16(high.w));
    staged[to] = high;
    staged[to + LOW] = uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
  }
  barrier();
  [[unroll]] for (uint i = 1; i < C / 16; i++) {
    const uint down = 16 / TILE_M, jobs = down * (16 * i / TILE_N);
    for (uint job = gl_SubgroupID; job < jobs; job += SUBGROUPS) {
      uint m = (i * 16 + job % down * TILE_M) * H_PITCH, j = job / down * TILE_N;
      SUM w = SUM(0.0);
      [[unroll]] for (uint k = 0; k < 16 * i; k += TILE_K)
        if (k + TILE_K > j) w = product(w, m + k / 8, k * H_PITCH + j / 8, LOW); // X is lower triangular
      split(SUM(0.0) - w, WAITING + job % down * TILE_M * H_PITCH + j / 8, 16 * H_PITCH);
    }
    barrier();
    for (uint job = gl_SubgroupID; job < jobs; job += SUBGROUPS) {
      uint row = i * 16 + job % down * TILE_M, j = job / down * TILE_N;
      SUM x = SUM(0.0);
      [[unroll]] for (uint k = 0; k < 16; k += TILE_K)
        x = product(x, row * H_PITCH + (i * 16 + k) / 8, WAITING + k * H_PITCH + j / 8, 16 * H_PITCH);
      coopMatStore(x, products, row * F_PITCH + j / 4, F_PITCH, gl_CooperativeMatrixLayoutRowMajor);
      if (i + 1 < C / 16) split(x, row * H_PITCH + j / 8, LOW);
    }
    barrier();
  }
}

void fade(uint lane) {
  for (uint i = lane; i < C; i += LANES) {
    fades[i / 4][i % 4] = exp(G[i]);
    fades[(C + i) / 4][i % 4] = exp(G[C - 1] - G[i]);
    if (i < QUERIES) fades[(2 * C + i) / 4][i % 4] = args.scale * exp(G[min(i * N, C - 1)]);
  }
}

void write(uint lane) {
  for (uint i = lane; i < C * C8; i += LANES) {
    uint at = i / C8 * F_PITCH + i % C8 * 2, c = i % C8 * 8;
    vec4 low = products[at] * vec4(betas[c], betas[c + 1], betas[c + 2], betas[c + 3]);
    vec4 high = products[at + 1] * vec4(betas[c + 4], betas[c + 5], betas[c + 6], betas[c + 7]);
    prepared[record + i] =
        uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
  }
  for (uint i = lane; i < (2 * C + QUERIES) / 4; i += LANES)
    prepared[record + DELTA_MATRIX_FADES(C, N) + i] = floatBitsToUint(fades[i]);
}

void main() {
  uint lane = gl_LocalInvocationIndex, head = gl_WorkGroupID.x;
  find_chunk(gl_WorkGroupID.y, DELTA_MATRIX_RECORD(C, N));
  if (count == 0) return;
  load_gates(lane, head);

  SUM sums[ROWS_EACH][TILES_C];
  [[unroll]] for (uint n = 0; n < ROWS_EACH; n++)
    [[unroll]] for (uint j = 0; j < TILES_C; j++) sums[n][j] = SUM(0.0);
  for (uint d0 = 0; d0 < DK; d0 += SLAB) {
    if (d0 > 0) barrier();
    stage(lane, head / (args.Hv / args.H), d0);
    barrier();
    [[unroll]] for (uint x = 0; x < SLAB; x += TILE_K) {
      RIGHT right[TILES_C];
      [[unroll]] for (uint j = 0; j < TILES_C; j++)
        coopMatLoad(right[j], staged, j * TILE_N * PITCH + x / 8, PITCH,
                    gl_CooperativeMatrixLayoutColumnMajor);
      [[unroll]] for (uint n = 0; n < ROWS_EACH; n++) {
        uint i = n * SUBGROUPS + gl_SubgroupID;
        if (ROWS / TILE_M % SUBGROUPS == 0 || i < ROWS / TILE_M) {
          LEFT left;
          coopMatLoad(left, staged, i * TILE_M * PITCH + x / 8, PITCH,
                      gl_CooperativeMatrixLayoutRowMajor);
          [[unroll]] for (uint j = 0; j < TILES_C; j++) sums[n][j] = coopMatMulAdd(left, right[j], sums[n][j]);
        }
      }
    }
  }
  [[unroll]] for (uint n = 0; n < ROWS_EACH; n++) {
    uint i = n * SUBGROUPS + gl_SubgroupID;
    if (ROWS / TILE_M % SUBGROUPS == 0 || i < ROWS / TILE_M)
      [[unroll]] for (uint j = 0; j < TILES_C; j++)
        coopMatStore(sums[n][j], products, i * TILE_M * F_PITCH + j * TILE_N / 4, F_PITCH,
                     gl_CooperativeMatrixLayoutRowMajor);
  }
  sum_gates(lane);
  barrier();
  fade(lane);
  mask(lane);
  barrier();
  invert_blocks(lane);
  if (C > 16) invert_rows(lane);
  write(lane);
}
