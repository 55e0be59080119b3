#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_shader_subgroup_basic : require
// y (T, N) = x (T, K) w (N, K)^T (+ bias) (+ y) on cooperative matrices (coopmat): f16 operands, f32 sums. With GATED,
// w (2 N, K) has gate's rows and then up's, and y = act(x gate^T) * (x up^T) in f16; half of a tile's columns are
// gate's, and every subgroup has as many of both. Inputs and other weights than f16 become f16 on their way into shared
// memory; inputs are clamped to its range.
// ceil(T / TILE_T) * ceil(N / TILE_N) workgroups, each a tile of y, in steps of TILE_K. The data of the next step is
// loaded into registers while this step multiplies from shared memory. Workgroups that run together share rows of both
// operands: their order goes down BAND tiles of N, then along T. Any T, N, K.
// SPLIT: if tiles are too few, or the last ones would leave processors idle, several workgroups split the K of one
// tile. The last to finish, by a ticket, adds up all partial sums, always in the same order, and completes the tile.
// TURN_X: x is stored as (K, T). TURN_W: w is stored as (K, N). Such an operand is f16, and its stride is a multiple of
// 8. Its tile in shared memory has one row per k, too.
// EXPERTS: each row of y has an expert, w (experts * N, K) or (experts * 2 N, K); a tile's rows are of one expert,
// gathered and scattered. Without bias, add and SPLIT.
#include "matmul_matrix.h"
layout(local_size_x_id = MATMUL_MATRIX_SPEC_LANES) in;
layout(constant_id = MATMUL_MATRIX_SPEC_TILE_T) const uint TILE_T = 16;
layout(constant_id = MATMUL_MATRIX_SPEC_TILE_N) const uint TILE_N = 16;
layout(constant_id = MATMUL_MATRIX_SPEC_TILE_K) const uint TILE_K = 16;
layout(constant_id = MATMUL_MATRIX_SPEC_ACROSS_T) const uint ACROSS_T = 1;
layout(constant_id = MATMUL_MATRIX_SPEC_ACROSS_N) const uint ACROSS_N = 1;
layout(constant_id = MATMUL_MATRIX_SPEC_M) const uint M = 16;
layout(constant_id = MATMUL_MATRIX_SPEC_N) const uint N = 16;
layout(constant_id = MATMUL_MATRIX_SPEC_K) const uint K = 16;
layout(constant_id = MATMUL_MATRIX_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = MATMUL_MATRIX_SPEC_ACTIVATION) const uint ACTIVATION = 0;
layout(constant_id = MATMUL_MATRIX_SPEC_SPLIT) const uint SPLIT = 0;
#ifdef GATED
layout(set = 0, binding = MATMUL_MATRIX_Y) writeonly buffer y_block { float16_t y[]; };
const uint HALVES = 2;
#define OUTPUT(sum) coopmat<float16_t, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(sum)
#else
layout(set = 0, binding = MATMUL_MATRIX_Y) buffer y_block { float y[]; };
const uint HALVES = 1;
#define OUTPUT(sum) (sum)
#endif
#ifdef X_F16
layout(set = 0, binding = MATMUL_MATRIX_X) readonly buffer x_block { float16_t x[]; };
layout(set = 0, binding = MATMUL_MATRIX_X) readonly buffer x8_block { uvec4 x8[]; };
#else
layout(set = 0, binding = MATMUL_MATRIX_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = MATMUL_MATRIX_X) readonly buffer x4_block { vec4 x4[]; };
#endif
layout(set = 0, binding = MATMUL_MATRIX_BIAS) readonly buffer bias_block { float bias[]; };
#ifdef EXPERTS
#define ORDER_BINDING MATMUL_MATRIX_ORDER
#define STARTS_BINDING MATMUL_MATRIX_STARTS
#include "experts_tile.glsl"
#else
layout(set = 0, binding = MATMUL_MATRIX_PARTS) coherent buffer parts_block { vec4 parts[]; };
layout(set = 0, binding = MATMUL_MATRIX_TICKETS) coherent buffer tickets_block { uint tickets[]; };
#define ROWS_OF_TILE args.T
#define Y_ROW(t) (t)
#define EXPERT_GROUPS(rows) 0
#endif

const uint LANES = gl_WorkGroupSize.x;
const uint BAND = 8;
#ifdef TURN_X // x_tile (TILE_K, TILE_T)
const uint X_ROWS = TILE_K, X8 = TILE_T / 8;
#define A_LAYOUT gl_CooperativeMatrixLayoutColumnMajor
#define A_AT(t, k) ((k) * X_PITCH + (t) / 8)
#else // (TILE_T, TILE_K)
const uint X_ROWS = TILE_T, X8 = TILE_K / 8;
#define A_LAYOUT gl_CooperativeMatrixLayoutRowMajor
#define A_AT(t, k) ((t) * X_PITCH + (k) / 8)
#endif
#ifdef TURN_W // w_tile (TILE_K, TILE_N)
const uint W_ROWS = TILE_K, W8 = TILE_N / 8;
#define B_LAYOUT gl_CooperativeMatrixLayoutRowMajor
#define B_AT(n, k) ((k) * W_PITCH + (n) / 8)
#else // (TILE_N, TILE_K)
const uint W_ROWS = TILE_N, W8 = TILE_K / 8;
#define B_LAYOUT gl_CooperativeMatrixLayoutColumnMajor
#define B_AT(n, k) ((n) * W_PITCH + (k) / 8)
#endif
// A row of a tile has X8 or W8 groups of 8 elements. PITCH: uvec4 of a row, with padding against bank conflicts.
const uint X_PITCH = X8 + 1, W_PITCH = W8 + 1;
const uint WIDE = TILE_N / HALVES; // outputs of a tile
const uint SIDE = TILE_N / ACROSS_N / N / HALVES; // coopmats of a subgroup along N in each half
const uint SUB_T = TILE_T / ACROSS_T / M, SUB_N = TILE_N / ACROSS_N / N; // coopmats of a subgroup
const uint LOADS_X = (X_ROWS * X8 + LANES - 1) / LANES;
const uint EACH = M * N * ACROSS_T * ACROSS_N / LANES; // elements of an accumulator that an invocation stores
shared uvec4 x_tile[X_ROWS * X_PITCH];
shared uvec4 w_tile[W_ROWS * W_PITCH]; // at the end it also stages coopmats that only partly lie in y

#define WEIGHTS_BINDING MATMUL_MATRIX_WEIGHTS
#define WEIGHTS_SPEC_FORMAT MATMUL_MATRIX_SPEC_FORMAT
#include "weights.glsl"
#include "halves.glsl"
const uint KW = W8 / STAGED_EIGHTS, LOADS_W = (W_ROWS * KW + LANES - 1) / LANES; // weights that are staged at once
#include "activation.glsl"

// Eight inputs from `at` on; the row has `left` more, then zeros, since zero weights must not multiply a NaN.
#ifdef X_F16
#define INPUTS uvec4
#define INPUTS_ZERO uvec4(0)
uvec4 inputs(uint at, uint left) {
  if (ALIGNED != 0) return x8[at / 8];
  uvec4 v;
  [[unroll]] for (uint j = 0; j < 4; j++)
    v[j] = packHalf2x16(vec2(2 * j < left ? float(x[at + 2 * j]) : 0.0,
                             2 * j + 1 < left ? float(x[at + 2 * j + 1]) : 0.0));
  return v;
}
uvec4 staged(uvec4 v) { return v; }
#else
#define INPUTS inputs8
#define INPUTS_ZERO inputs8(vec4(0.0), vec4(0.0))
struct inputs8 {
  vec4 low, high;
};

inputs8 inputs(uint at, uint left) {
  if (ALIGNED != 0) return inputs8(x4[at / 4], x4[at / 4 + 1]);
  inputs8 v;
  [[unroll]] for (uint j = 0; j < 4; j++) {
    v.low[j] = j < left ? x[at + j] : 0.0;
    v.high[j] = j + 4 < left ? x[at + j + 4] : 0.0;
  }
  return v;
}

uvec2 half4(vec4 v) {
  v = clamp(v, -65504.0, 65504.0);
  return uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw));
}
uvec4 staged(inputs8 v) { return uvec4(half4(v.low), half4(v.high)); }
#endif

INPUTS rx[LOADS_X];
STAGED rw[LOADS_W];

#ifdef EXPERTS
uint x_from[LOADS_X]; // where the rows begin that an invocation loads
#define X_FROM(l, t) x_from[l]
#else
#define X_FROM(l, t) (min(t, args.T - 1) * args.x_stride)
#endif

// Index of the group of 8 at this column in row k of such an operand. A column past the end reads the last group, whose
// results are not stored.
uint turned_at(uint k, uint column, uint stride) { return (min(k, args.K - 1) * stride + min(column, stride - 8)) / 8; }

// Rows past the last repeat it: their results are not stored.
void fetch(uint t0, uint n0, uint k0) {
  [[unroll]] for (uint l = 0; l < LOADS_X; l++) {
#ifdef TURN_X
    uint i = gl_LocalInvocationID.x + l * LANES, k = k0 + i / X8;
    rx[l] = x8[turned_at(k, t0 + i % X8 * 8, args.x_stride)];
    if (ALIGNED != 2 && k >= args.K) rx[l] = INPUTS_ZERO;
#else
    uint i = gl_LocalInvocationID.x + l * LANES, k = k0 + i % X8 * 8;
    uint at = X_FROM(l, t0 + i / X8) + k;
    if (ALIGNED == 2)
      rx[l] = inputs(at, 8);
    else if (k < args.K)
      rx[l] = inputs(at, args.K - k);
    else
      rx[l] = INPUTS_ZERO;
#endif
  }
  [[unroll]] for (uint l = 0; l < LOADS_W; l++) {
#ifdef TURN_W
    uint i = gl_LocalInvocationID.x + l * LANES, k = k0 + i / W8;
    rw[l] = packed8(turned_at(k, n0 + i % W8 * 8, args.w_stride));
    if (ALIGNED != 2 && k >= args.K) rw[l] = STAGED_ZERO;
#else
    uint i = gl_LocalInvocationID.x + l * LANES, k = k0 + i % KW * 8 * STAGED_EIGHTS;
    if (TILE_N * KW % LANES != 0 && i >= TILE_N * KW) continue;
    uint row = min(n0 + i / KW % WIDE, args.N - 1) + i / KW / WIDE * args.N;
    uint at = row * args.w_stride + k;
    if (ALIGNED == 2 || k < args.K)
      rw[l] = STAGED_AT((EXPERT_GROUPS(args.N * HALVES) + at / 8) / STAGED_EIGHTS);
    else
      rw[l] = STAGED_ZERO;
#endif
  }
}

void stage() {
  [[unroll]] for (uint l = 0; l < LOADS_X; l++) {
    uint i = gl_LocalInvocationID.x + l * LANES;
    if (X_ROWS * X8 % LANES == 0 || i < X_ROWS * X8) x_tile[i / X8 * X_PITCH + i % X8] = staged(rx[l]);
  }
  [[unroll]] for (uint l = 0; l < LOADS_W; l++) {
    uint i = gl_LocalInvocationID.x + l * LANES;
    if (W_ROWS * KW % LANES != 0 && i >= W_ROWS * KW) continue;
#ifdef W_BLOCKS
    uint at = i / KW * W_PITCH + i % KW * 2;
    staged_halves(rw[l], w_tile[at], w_tile[at + 1]);
#else
    w_tile[i / KW * W_PITCH + i % KW] = halves(rw[l]);
#endif
  }
}

// barrier() only orders shared memory.
void barrier_of_buffers() {
  controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                 gl_SemanticsAcquireRelease);
}

void main() {
  uint across = (args.N + WIDE - 1) / WIDE, down = (args.T + TILE_T - 1) / TILE_T;
  uint tile = gl_WorkGroupID.x, part = 0, count = 1, k_first = 0, k_end = args.K;
  if (SPLIT != 0 && tile >= args.whole) {
    uint steps = (args.K + TILE_K - 1) / TILE_K;
    count = args.parts;
    part = (tile - args.whole) % count;
    tile = args.whole + (tile - args.whole) / count;
    k_first = part * steps / count * TILE_K;
    k_end = (part + 1) * steps / count * TILE_K;
  }
  uint band = tile / (BAND * down), in_band = tile % (BAND * down);
  uint wide = min(across - band * BAND, BAND);
  uint n0 = (band * BAND + in_band % wide) * WIDE, t0 = in_band / wide * TILE_T;
#ifdef EXPERTS
  tile += gl_WorkGroupID.y * gl_NumWorkGroups.x;
  if (!find_tile(tile / across, TILE_T)) return;
  n0 = tile % across * WIDE;
  t0 = 0;
  [[unroll]] for (uint l = 0; l < LOADS_X; l++) {
    uint t = (gl_LocalInvocationID.x + l * LANES) / X8;
    x_from[l] = X_ROW(min(t, ROWS_OF_TILE - 1)) * args.x_stride;
  }
#endif
  uint row = gl_SubgroupID / ACROSS_N * SUB_T * M;         // in the tile
  uint col = gl_SubgroupID % ACROSS_N * SUB_N / HALVES * N; // the same, in each half

  coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> sums[SUB_T * SUB_N];
  bool direct = args.direct != 0 && args.has_bias == 0 && t0 + TILE_T <= args.T && n0 + WIDE <= args.N;
  uint y0 = (t0 + row) * args.y_stride + args.first + n0 + col;
  [[unroll]] for (uint i = 0; i < SUB_T; i++) {
    [[unroll]] for (uint j = 0; j < SUB_N; j++) {
      sums[i * SUB_N + j] = coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(0.0);
#ifndef GATED
      if (direct && args.add != 0 && part == 0)
        coopMatLoad(sums[i * SUB_N + j], y, y0 + i * M * args.y_stride + j * N, args.y_stride,
                    gl_CooperativeMatrixLayoutRowMajor);
#endif
    }
  }

  fetch(t0, n0, k_first);
  for (uint k0 = k_first; k0 < k_end; k0 += TILE_K) {
    barrier();
    stage();
    barrier();
    if (k0 + TILE_K < k_end) fetch(t0, n0, k0 + TILE_K);
    [[unroll]] for (uint k = 0; k < TILE_K / K; k++) {
      coopmat<float16_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> a[SUB_T];
      [[unroll]] for (uint i = 0; i < SUB_T; i++)
        coopMatLoad(a[i], x_tile, A_AT(row + i * M, k * K), X_PITCH, A_LAYOUT);
      [[unroll]] for (uint j = 0; j < SUB_N; j++) {
        coopmat<float16_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> b;
        coopMatLoad(b, w_tile, B_AT(j / SIDE * WIDE + col + j % SIDE * N, k * K), W_PITCH, B_LAYOUT);
        [[unroll]] for (uint i = 0; i < SUB_T; i++)
          sums[i * SUB_N + j] = coopMatMulAdd(a[i], b, sums[i * SUB_N + j]);
      }
    }
  }

#ifndef EXPERTS
  if (SPLIT != 0 && count > 1) {
    const uint MATRICES = SUB_T * SUB_N, FOURS = M * N * ACROSS_T * ACROSS_N / LANES / 4;
    const uint LOADED = 4; // matrices whose partial sums are loaded together
    uint first = gl_WorkGroupID.x - part - args.whole; // index among the workgroups of split tiles
    uint place = (first + part) * MATRICES * FOURS * LANES + gl_LocalInvocationID.x;
    [[unroll]] for (uint i = 0; i < MATRICES; i++) {
      [[unroll]] for (uint e = 0; e < FOURS; e++)
        parts[place + (i * FOURS + e) * LANES] =
            vec4(sums[i][4 * e], sums[i][4 * e + 1], sums[i][4 * e + 2], sums[i][4 * e + 3]);
    }
    memoryBarrierBuffer(); // in case the driver's barrier does not include it
    barrier_of_buffers();
    if (gl_LocalInvocationID.x == 0) // publishes this workgroup's partial sums, and learns about the others'
      x_tile[0].x = atomicAdd(tickets[tile - args.whole], 1, gl_ScopeQueueFamily, gl_StorageSemanticsBuffer,
                              gl_SemanticsAcquireRelease);
    barrier_of_buffers();
    if (x_tile[0].x != count - 1) return;
    if (gl_LocalInvocationID.x == 0) tickets[tile - args.whole] = 0;
    [[unroll]] for (uint i = 0; i < MATRICES; i++)
      sums[i] = coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(0.0);
    for (uint p = first; p < first + count; p++) {
      place = p * MATRICES * FOURS * LANES + gl_LocalInvocationID.x;
      [[unroll]] for (uint i0 = 0; i0 < MATRICES; i0 += LOADED) {
        vec4 fours[LOADED * FOURS];
        [[unroll]] for (uint e = 0; e < LOADED * FOURS; e++)
          if (i0 + e / FOURS < MATRICES) fours[e] = parts[place + (i0 * FOURS + e) * LANES];
        [[unroll]] for (uint e = 0; e < LOADED * FOURS; e++)
          if (i0 + e / FOURS < MATRICES) {
            [[unroll]] for (uint f = 0; f < 4; f++) sums[i0 + e / FOURS][e % FOURS * 4 + f] += fours[e][f];
          }
      }
    }
  }

#endif
#ifdef GATED
  [[unroll]] for (uint i = 0; i < SUB_T; i++) {
    [[unroll]] for (uint j = 0; j < SIDE; j++) {
      [[unroll]] for (uint e = 0; e < sums[0].length(); e++) {
        float value = activate(ACTIVATION, sums[i * SUB_N + j][e]) * sums[i * SUB_N + SIDE + j][e];
        sums[i * SUB_N + j][e] = clamp(value, -65504.0, 65504.0);
      }
    }
  }
#endif
  if (direct) {
    [[unroll]] for (uint i = 0; i < SUB_T; i++) {
      [[unroll]] for (uint j = 0; j < SIDE; j++)
        coopMatStore(OUTPUT(sums[i * SUB_N + j]), y, y0 + i * M * args.y_stride + j * N, args.y_stride,
                     gl_CooperativeMatrixLayoutRowMajor);
    }
    return;
  }
  barrier();
  const uint ROW = N / 4; // vectors in a row of a coopmat
  uint place = gl_SubgroupID * M * ROW;
  [[unroll]] for (uint i = 0; i < SUB_T; i++) {
    [[unroll]] for (uint j = 0; j < SIDE; j++) {
      coopMatStore(sums[i * SUB_N + j], w_tile, place, ROW, gl_CooperativeMatrixLayoutRowMajor);
      controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
      [[unroll]] for (uint p = 0; p < EACH; p++) {
        uint e = gl_SubgroupInvocationID + p * LANES / (ACROSS_T * ACROSS_N);
        uint t = t0 + row + i * M + e / N, n = n0 + col + j * N + e % N;
        if (t < ROWS_OF_TILE && n < args.N) {
          float sum = uintBitsToFloat(w_tile[place + e / 4][e % 4]);
          uint at = Y_ROW(t) * args.y_stride + args.first + n;
#ifdef GATED
          y[at] = float16_t(sum);
#else
          if (args.has_bias != 0) sum += bias[args.first + n];
          y[at] = args.add != 0 ? y[at] + sum : sum;
#endif
        }
      }
      controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    }
  }
}
