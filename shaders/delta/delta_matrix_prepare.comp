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
// qkv (T, (1 + N) H Dk + N Hv Dv), beta (T, N Hv), g (T, Hv). Workgroups (Hv, chunks): one record each (two, for a lane
// to invert each column of, lost: docs/speed/log.md). Products are f16 x f16 -> f32; masks and the inverse are f32:
// diagonal blocks of 16 by substitution, then row after row of blocks, X_i = -X_ii (A_i X), to f32's digits. (Never the
// series (I - A)(I + A^2)...: its terms grow beyond f32 for correlated keys.) All of it is transposed, so that the
// invocation that solved a column of 16 writes it as a row of Tm^T. Any Dk, H, Hv; C / N tokens a chunk.
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

// Down to here D is a product of two factors, e^G_i e^-G_j; sums of harder decays have no e^-G in f32.
const float LOWEST_FACTOR = -80.0;
const uint STEPS = C, TOKENS = C / N;
const uint QUERIES = DELTA_MATRIX_QUERIES(C, N);
const uint ROWS = C + QUERIES; // K's, then Q's
const uint SLAB8 = SLAB / 8;
const bool WHOLE = UNIT == 8 && EDGES == 0; // keys are loaded as they are
const uint PITCH = SLAB8 + 1; // of a staged row, 16 bytes each; the odd one spreads rows over banks
const uint F_PITCH = C / 4 + 1;
const uint C8 = C / 8;
const uint TILES_C = C / TILE_N;                                    // of columns of the products
const uint SUBGROUPS = LANES / SUBGROUP;
const uint ROWS_EACH = (ROWS / TILE_M + SUBGROUPS - 1) / SUBGROUPS; // rows of tiles that a subgroup makes of a chunk
// When K and Q have gone, A^T takes their place (C rows of F_PITCH, f32) and becomes (I + A)^-T. Behind it, from HALF
// on, comes P (f16, rows of H_PITCH), which then makes room for A^T once more as f16, LOW later what rounding took from
// it, and, of both kinds, 16 columns of a product.
const uint H_PITCH = C8 + 1, LOW = C * H_PITCH, HALF = C * F_PITCH, WAITING = HALF + 2 * LOW, W_PITCH = 3;
const uint LATER = C > 16 ? WAITING + 2 * C * W_PITCH : HALF + QUERIES * H_PITCH;
shared uvec4 staged[LATER > ROWS * PITCH ? LATER : ROWS * PITCH]; // f16
shared vec4 fades[(C + ROWS) / 4];                                // as in a record
shared float scales[ROWS + C]; // e^-G; scale e^G of a token; beta e^G: the factors of A^T's rows, P's, A^T's columns
#include "delta_matrix_chunk.glsl"
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, TILE_K, TILE_N, gl_MatrixUseB>
#define SUM coopmat<float, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define SUM16 coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>

// Columns d0 ... of K and Q. Rows past the end are any row's: their beta is 0, and nobody reads what P has of them.
const uint K_EACH = (C * SLAB8 + LANES - 1) / LANES, Q_EACH = (QUERIES * SLAB8 + LANES - 1) / LANES;
fetched8 next_k[K_EACH], next_q[Q_EACH];

// Where the key of step r begins, and the query of token r, counted in `unit` numbers.
uint key_row(uint r, uint key_head, uint unit) {
  const uint t = row + min(r / N, count - 1), heads = (1 + r % N) * args.H;
  return t * (args.qkv_stride / unit) + (heads + key_head) * (args.pitch / unit);
}
uint query_row(uint r, uint key_head, uint unit) {
  return (row + min(r, count - 1)) * (args.qkv_stride / unit) + key_head * (args.pitch / unit);
}

void fetch(uint lane, uint key_head, uint d0) {
  [[unroll]] for (uint n = 0; n < K_EACH; n++) {
    uint i = n * LANES + lane, r = i / SLAB8, c = i % SLAB8;
    if (C * SLAB8 % LANES == 0 || i < C * SLAB8) {
      if (WHOLE)
        next_k[n].x = halves(qkv8[key_row(r, key_head, 8) + d0 / 8 + c]);
      else
        next_k[n] = fetch8_of(key_row(r, key_head, 1), d0 + c * 8, args.pitch, UNIT, EDGES != 0);
    }
  }
  [[unroll]] for (uint n = 0; n < Q_EACH; n++) {
    uint i = n * LANES + lane, r = i / SLAB8, c = i % SLAB8;
    if (QUERIES * SLAB8 % LANES == 0 || i < QUERIES * SLAB8) {
      if (WHOLE)
        next_q[n].x = halves(qkv8[query_row(r, key_head, 8) + d0 / 8 + c]);
      else
        next_q[n] = fetch8_of(query_row(r, key_head, 1), d0 + c * 8, args.pitch, UNIT, EDGES != 0);
    }
  }
}

void put(uint lane, uint key_head, uint d0) {
  [[unroll]] for (uint n = 0; n < K_EACH; n++) {
    uint i = n * LANES + lane, r = i / SLAB8, c = i % SLAB8;
    if (C * SLAB8 % LANES == 0 || i < C * SLAB8)
      staged[r * PITCH + c] =
          finish8_of(next_k[n], key_row(r, key_head, 1), d0 + c * 8, args.pitch, UNIT, EDGES != 0);
  }
  [[unroll]] for (uint n = 0; n < Q_EACH; n++) {
    uint i = n * LANES + lane, r = i / SLAB8, c = i % SLAB8;
    if (QUERIES * SLAB8 % LANES == 0 || i < QUERIES * SLAB8)
      staged[(C + r) * PITCH + c] =
          finish8_of(next_q[n], query_row(r, key_head, 1), d0 + c * 8, args.pitch, UNIT, EDGES != 0);
  }
}

// The fades of the record, and what makes A^T and P of the products: without factors beta and scale alone.
void fade(uint lane, bool factored) {
  const bool gated = args.gated != 0;
  [[unroll]] for (uint i0 = 0; i0 < C; i0 += LANES) {
    uint i = i0 + lane;
    if (C % LANES == 0 || i < C) {
      float decay = gated ? exp(G[i]) : 1.0;
      fades[i / 4][i % 4] = decay;
      fades[(C + i) / 4][i % 4] = gated ? exp(G[C - 1] - G[i]) : 1.0;
      scales[i] = factored ? exp(-G[i]) : 1.0;
      scales[ROWS + i] = factored ? betas[i] * decay : betas[i];
    }
  }
  [[unroll]] for (uint i0 = 0; i0 < QUERIES; i0 += LANES) {
    uint i = i0 + lane;
    if (QUERIES % LANES == 0 || i < QUERIES) {
      float decay = gated ? args.scale * exp(G[min(i * N, C - 1)]) : args.scale;
      fades[(2 * C + i) / 4][i % 4] = decay;
      scales[C + i] = factored ? decay : args.scale;
    }
  }
}

vec4 numbers(uint i) { return uintBitsToFloat(staged[i]); }

uvec4 pack8(vec4 low, vec4 high) {
  return uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
}

// By how much what came at steps c ... c + 3 has faded at `step`, or, later, the other way round.
vec4 faded(uint step, uint c, const bool later) {
  vec4 w;
  [[unroll]] for (uint j = 0; j < 4; j++) w[j] = exp(min(later ? G[c + j] - G[step] : G[step] - G[c + j], 0.0));
  return w;
}

// D, where it is no product of two factors.
void weigh(uint lane) {
  for (uint i = lane; i < C * C8; i += LANES) {
    uint r = i / C8, c = i % C8 * 8, at = r * F_PITCH + c / 4;
    staged[at] = floatBitsToUint(numbers(at) * faded(r, c, true));
    staged[at + 1] = floatBitsToUint(numbers(at + 1) * faded(r, c + 4, true));
  }
  for (uint i = lane; i < QUERIES * C8; i += LANES) {
    uint t = i / C8, c = i % C8 * 8, step = min(t * N, C - 1), at = HALF + t * H_PITCH + c / 8;
    uvec4 x = staged[at];
    staged[at] = pack8(vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y)) * faded(step, c, false),
                       vec4(unpackHalf2x16(x.z), unpackHalf2x16(x.w)) * faded(step, c + 4, false));
  }
}

void write_queries(uint lane) {
  [[unroll]] for (uint i0 = 0; i0 < QUERIES * C8; i0 += LANES) {
    uint i = i0 + lane, t = i / C8, c = i % C8 * 8, end = (t + 1) * N;
    if (QUERIES * C8 % LANES == 0 || i < QUERIES * C8) {
      uvec4 x = staged[HALF + t * H_PITCH + c / 8];
      [[unroll]] for (uint k = 0; k < 4; k++)
        x[k] &= (c + 2 * k < end ? 0xffffu : 0) | (c + 2 * k + 1 < end ? 0xffff0000u : 0);
      prepared[record + DELTA_MATRIX_P(C) + i] = x;
    }
  }
}

void write_fades(uint lane) {
  [[unroll]] for (uint i0 = 0; i0 < (C + ROWS) / 4; i0 += LANES) {
    uint i = i0 + lane;
    if ((C + ROWS) / 4 % LANES == 0 || i < (C + ROWS) / 4)
      prepared[record + DELTA_MATRIX_FADES(C, N) + i] = floatBitsToUint(fades[i]);
  }
}

// Diagonal blocks: column j of the inverse X solves x_i = [i = j] - sum_{m<i} A_im x_m, and is row j of its transpose.
// A chunk of one block is then done: the row times beta is Tm^T's.
void invert_blocks(uint lane) {
  [[unroll]] for (uint base = 0; base < C; base += LANES) {
    uint column = base + lane, block = column / 16, j = column % 16;
    bool mine = C % LANES == 0 || column < C;
    uint at = block * 16 * F_PITCH + block * 4;
    float x[16];
    if (mine) {
      const float own = C == 16 ? betas[j] : 1.0;
      [[unroll]] for (uint i = 0; i < 16; i++) x[i] = i == j ? own : 0.0;
      [[unroll]] for (uint m = 0; m < 15; m++)
        [[unroll]] for (uint q = (m + 1) / 4; q < 4; q++) {
          vec4 a = numbers(at + m * F_PITCH + q);
          [[unroll]] for (uint i = 4 * q; i < 4 * q + 4; i++)
            if (i > m) x[i] -= a[i % 4] * x[m];
        }
    }
    if (C > 16) barrier(); // all columns of this round are known: A may go
    if (mine)
      [[unroll]] for (uint q = 0; q < 4; q++) {
        vec4 y = vec4(x[4 * q], x[4 * q + 1], x[4 * q + 2], x[4 * q + 3]);
        if (C > 16)
          staged[at + j * F_PITCH + q] = floatBitsToUint(y);
        else if (q % 2 == 1)
          prepared[record + j * 2 + q / 2] = pack8(vec4(x[4 * q - 4], x[4 * q - 3], x[4 * q - 2], x[4 * q - 1]), y);
      }
  }
  if (C > 16) barrier();
}

// Adds a tile's product; its operands are at `left` and `right` of `staged`, in rows of these pitches, and their rests
// `low` and LOW after.
SUM product(SUM sum, uint left, uint pitch, uint low, uint right) {
  LEFT a, a_rest;
  RIGHT b, b_rest;
  coopMatLoad(a, staged, left, pitch, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(a_rest, staged, left + low, pitch, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(b, staged, right, H_PITCH, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(b_rest, staged, right + LOW, H_PITCH, gl_CooperativeMatrixLayoutRowMajor);
  return coopMatMulAdd(a, b, coopMatMulAdd(a, b_rest, coopMatMulAdd(a_rest, b, sum)));
}

void split(SUM x, uint to, uint pitch, uint low) {
  SUM16 high = SUM16(x);
  coopMatStore(high, staged, to, pitch, gl_CooperativeMatrixLayoutRowMajor);
  coopMatStore(SUM16(x - SUM(high)), staged, to + low, pitch, gl_CooperativeMatrixLayoutRowMajor);
}

// Columns of blocks of Y = X^T, one after the other: Y_i = -(Y A^T_i) Y_ii, of the columns before it. Both operands are
// f16 and the rest that rounding left, three products: digits lost here would be lost for good.
void invert_columns(uint lane) {
  [[unroll]] for (uint i0 = 0; i0 < C * C8; i0 += LANES) {
    uint i = i0 + lane, at = i / C8 * F_PITCH + i % C8 * 2, to = HALF + i / C8 * H_PITCH + i % C8;
    if (C * C8 % LANES == 0 || i < C * C8) {
      vec4 a = numbers(at), b = numbers(at + 1);
      uvec4 high = pack8(a, b);
      staged[to] = high;
      staged[to + LOW] = pack8(a - vec4(unpackHalf2x16(high.x), unpackHalf2x16(high.y)),
                               b - vec4(unpackHalf2x16(high.z), unpackHalf2x16(high.w)));
    }
  }
  barrier();
  [[unroll]] for (uint i = 1; i < C / 16; i++) {
    const uint across = 16 / TILE_N, jobs = across * (16 * i / TILE_M);
    for (uint job = gl_SubgroupID; job < jobs; job += SUBGROUPS) {
      uint r = job / across * TILE_M, c = job % across * TILE_N;
      SUM w = SUM(0.0);
      [[unroll]] for (uint k = 0; k < 16 * i; k += TILE_K)
        if (k + TILE_K > r) // Y is upper triangular
          w = product(w, HALF + r * H_PITCH + k / 8, H_PITCH, LOW, HALF + k * H_PITCH + (i * 16 + c) / 8);
      split(SUM(0.0) - w, WAITING + r * W_PITCH + c / 8, W_PITCH, C * W_PITCH);
    }
    barrier();
    for (uint job = gl_SubgroupID; job < jobs; job += SUBGROUPS) {
      uint r = job / across * TILE_M, c = i * 16 + job % across * TILE_N;
      SUM y = SUM(0.0);
      [[unroll]] for (uint k = 0; k < 16; k += TILE_K)
        y = product(y, WAITING + r * W_PITCH + k / 8, W_PITCH, C * W_PITCH, HALF + (i * 16 + k) * H_PITCH + c / 8);
      coopMatStore(y, staged, r * F_PITCH + c / 4, F_PITCH, gl_CooperativeMatrixLayoutRowMajor);
      if (i + 1 < C / 16) split(y, HALF + r * H_PITCH + c / 8, H_PITCH, LOW);
    }
    barrier();
  }
}

// Tm^T of several blocks; nothing was made below the diagonal ones.
void write_inverse(uint lane) {
  [[unroll]] for (uint i0 = 0; i0 < C * C8; i0 += LANES) {
    uint i = i0 + lane, r = i / C8, c = i % C8 * 8, at = r * F_PITCH + c / 4;
    if (C * C8 % LANES == 0 || i < C * C8)
      prepared[record + i] = c / 16 < r / 16 ? uvec4(0) : pack8(betas[r] * numbers(at), betas[r] * numbers(at + 1));
  }
}

void main() {
  const uint lane = gl_LocalInvocationIndex, head = gl_WorkGroupID.x;
  const uint key_head = args.Hv == args.H ? head : head / (args.Hv / args.H);
  find_chunk(gl_WorkGroupID.y, DELTA_MATRIX_RECORD(C, N));
  if (count == 0) return;
  fetch_gates(head);
  fetch(lane, key_head, 0);
  SUM sums[ROWS_EACH][TILES_C];
  [[unroll]] for (uint n = 0; n < ROWS_EACH; n++)
    [[unroll]] for (uint j = 0; j < TILES_C; j++) sums[n][j] = SUM(0.0);
  for (uint d0 = 0; d0 < DK; d0 += SLAB) {
    if (d0 > 0) barrier();
    put(lane, key_head, d0);
    if (d0 == 0) put_gates();
    barrier();
    if (d0 + SLAB < DK) fetch(lane, key_head, d0 + SLAB);
    [[unroll]] for (uint x = 0; x < SLAB; x += TILE_K) {
      RIGHT right[TILES_C];
      [[unroll]] for (uint j = 0; j < TILES_C; j++)
        coopMatLoad(right[j], staged, j * TILE_N * PITCH + x / 8, PITCH, gl_CooperativeMatrixLayoutColumnMajor);
      [[unroll]] for (uint n = 0; n < ROWS_EACH; n++) {
        uint i = n * SUBGROUPS + gl_SubgroupID;
        if (ROWS / TILE_M % SUBGROUPS == 0 || i < ROWS / TILE_M) {
          LEFT left;
          coopMatLoad(left, staged, i * TILE_M * PITCH + x / 8, PITCH, gl_CooperativeMatrixLayoutRowMajor);
          [[unroll]] for (uint j = 0; j < TILES_C; j++) sums[n][j] = coopMatMulAdd(left, right[j], sums[n][j]);
        }
      }
    }
  }
  const bool gated = args.gated != 0, factored = gated && G[C - 1] >= LOWEST_FACTOR;
  fade(lane, factored);
  barrier();
  // A^T and P; a load with stride 0 gives a number to a whole row or column. Of A^T only what is above the diagonal is
  // used, and only that is sure to be finite.
  [[unroll]] for (uint n = 0; n < ROWS_EACH; n++) {
    uint i = n * SUBGROUPS + gl_SubgroupID;
    if (ROWS / TILE_M % SUBGROUPS == 0 || i < ROWS / TILE_M) {
      const bool keys = i < C / TILE_M;
      SUM rows;
      coopMatLoad(rows, scales, i * TILE_M, 0, gl_CooperativeMatrixLayoutColumnMajor);
      [[unroll]] for (uint j = 0; j < TILES_C; j++) {
        SUM columns;
        coopMatLoad(columns, scales, (keys ? ROWS : 0) + j * TILE_N, 0, gl_CooperativeMatrixLayoutRowMajor);
        SUM x = rows * columns * sums[n][j];
        if (keys)
          coopMatStore(x, staged, i * TILE_M * F_PITCH + j * TILE_N / 4, F_PITCH, gl_CooperativeMatrixLayoutRowMajor);
        else
          coopMatStore(SUM16(x), staged, HALF + (i * TILE_M - C) * H_PITCH + j * TILE_N / 8, H_PITCH,
                       gl_CooperativeMatrixLayoutRowMajor);
      }
    }
  }
  barrier();
  if (gated && !factored) {
    weigh(lane);
    barrier();
  }
  write_queries(lane);
  write_fades(lane);
  invert_blocks(lane);
  if (C > 16) {
    invert_columns(lane);
    write_inverse(lane);
  }
}
