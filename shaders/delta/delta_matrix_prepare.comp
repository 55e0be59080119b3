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
// The part of the chunkwise delta rule that needs no state, on cooperative matrices (coopmat; UT transform, Yang et al.
// 2024; gates: Gated DeltaNet; output: delta_matrix.h):
//   A = strictly_lower(diag(beta) K K^T * D)    Tm = (I + A)^-1 diag(beta)    P = lower(scale Q K^T * D)
// with D_ij = e^(G_i - G_j), only used where i >= j: there it is <= 1.
// qkv (T, (1 + N) H Dk + N Hv Dv), beta (T, N Hv), g (T, Hv). Workgroups (Hv, chunks): one record each (two records, so
// that every lane inverts a column of one, were slower: docs/speed/log.md). Products are f16 x f16 -> f32. Masks and the
// inverse have the precision of f32: diagonal blocks of 16 by substitution, then the other blocks row by row, X_i =
// -X_ii (A_i X). The series (I - A)(I + A^2)... cannot be used: for correlated keys its terms overflow f32. All of it
// is transposed, so that the invocation that solved a column of 16 writes it as a row of Tm^T. Any Dk, H, Hv; C / N
// tokens per chunk.
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

// Down to this G, D is a product of two factors, e^G_i e^-G_j; below it, e^-G overflows f32.
const float LOWEST_FACTOR = -80.0;
const uint STEPS = C, TOKENS = C / N;
const uint QUERIES = DELTA_MATRIX_QUERIES(C, N);
const uint ROWS = C + QUERIES; // rows of K, then of Q
const uint SLAB8 = SLAB / 8;
const bool WHOLE = UNIT == 8 && EDGES == 0; // keys are loaded without conversion or edges
const uint PITCH = SLAB8 + 1; // units of 16 bytes of a staged row; the extra one spreads rows over banks
const uint F_PITCH = C / 4 + 1;
const uint C8 = C / 8;
const uint TILES_C = C / TILE_N;                                    // tiles along the columns of the products
const uint SUBGROUPS = LANES / SUBGROUP;
const uint ROWS_EACH = (ROWS / TILE_M + SUBGROUPS - 1) / SUBGROUPS; // rows of tiles of a subgroup
// After K and Q are used, A^T takes their memory (C rows of F_PITCH, f32) and becomes (I + A)^-T. After it, from HALF
// on, lies P (f16, rows of H_PITCH). P is then replaced by A^T in f16, LOW later its rounding errors, and, for both, 16
// columns of a product.
const uint H_PITCH = C8 + 1, LOW = C * H_PITCH, HALF = C * F_PITCH, WAITING = HALF + 2 * LOW, W_PITCH = 3;
const uint LATER = C > 16 ? WAITING + 2 * C * W_PITCH : HALF + QUERIES * H_PITCH;
shared uvec4 staged[LATER > ROWS * PITCH ? LATER : ROWS * PITCH]; // f16
shared vec4 fades[(C + ROWS) / 4];                                // as in a record
shared float scales[ROWS + C]; // e^-G, scale e^G, beta e^G: factors of A^T's rows, P's rows, A^T's columns
#include "delta_matrix_chunk.glsl"
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, TILE_K, TILE_N, gl_MatrixUseB>
#define SUM coopmat<float, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define SUM16 coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>

// Stages columns d0 ... of K and Q. Rows past the end have any token's data: their beta is 0, and nothing reads their
// part of P.
const uint K_EACH = (C * SLAB8 + LANES - 1) / LANES, Q_EACH = (QUERIES * SLAB8 + LANES - 1) / LANES;
fetched8 next_k[K_EACH], next_q[Q_EACH];

// Offset of the key of step r, and of the query of token r, in units of `unit` elements.
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

// Computes the record's fades, and the factors that turn the products into A^T and P; without `factored` only beta and
// scale.
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

// The decay from steps c ... c + 3 to `step`, or, with `later`, from `step` to them.
vec4 faded(uint step, uint c, const bool later) {
  vec4 w;
  [[unroll]] for (uint j = 0; j < 4; j++) w[j] = exp(min(later ? G[c + j] - G[step] : G[step] - G[c + j], 0.0));
  return w;
}

// Multiplies by D where it is not a product of two factors.
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

// Diagonal blocks: column j of the inverse X solves x_i = [i = j] - sum_{m<i} A_im x_m; it is row j of the transpose. A
// chunk of one block is then complete: the row times beta is a row of Tm^T.
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
    if (C > 16) barrier(); // all columns of this round are known: A may be overwritten
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

// Adds a product of tiles. Its operands are at `left` and `right` of `staged`, in rows of these pitches; their rounding
// errors are `low` and LOW after them.
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

// Columns of blocks of Y = X^T, one after another: Y_i = -(Y A^T_i) Y_ii, from the columns before it. Both operands are
// f16 plus their rounding errors, which makes three products: precision lost here could not be recovered.
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

// Writes Tm^T of several blocks; below the diagonal blocks nothing was computed.
void write_inverse(uint lane) {
  [[unroll]] for (uint i0 = 0; i0 < C * C8; i0 += LANES) {
    uint i = i0 + lane, r = i / C8, c = i % C8 * 8, at = r * F_PITCH + c / 4;
    if (C * C8 % LANES == 0 || i < C * C8)
      prepared[record + i] = c / 16 < r / 16 ? uvec4(0) : pack8(betas[r] * numbers(at), betas[r] * numbers(at + 1));
  }
}

void main() {
  const uint lane = gl_LocalInvocationIndex, head = gl_WorkGroupID.x;
  const uint key_head = args.Hv == args.H ? head : head / args.share % args.H;
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
  // A^T and P; a load with stride 0 copies one element to a whole row or column. Only the part of A^T above the
  // diagonal is used, and only that is always finite.
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
