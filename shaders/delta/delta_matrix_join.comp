#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
// Computes the states between the segments of a sequence (delta_matrix.h) on cooperative matrices. From the state after
// the first segment on, S <- M S + N, segment by segment. Each S replaces its segment's N; the last one is the
// sequence's. M and S are each f16 plus their rounding errors in f16, which makes three products: S passes through all
// of them and would lose precision each time.
// Workgroups (DVP / COLUMNS, Hv, B): COLUMNS value columns of one head of one sequence. A subgroup owns a tile of rows
// of S and needs the same rows of M. Workgroups are wide because each reads all of M.
#include "delta_matrix_join.h"
layout(local_size_x_id = DELTA_MATRIX_JOIN_SPEC_LANES) in;
layout(constant_id = DELTA_MATRIX_JOIN_SPEC_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = DELTA_MATRIX_JOIN_SPEC_TILE_M) const uint TILE_M = 16;
layout(constant_id = DELTA_MATRIX_JOIN_SPEC_TILE_N) const uint TILE_N = 16;
layout(constant_id = DELTA_MATRIX_JOIN_SPEC_TILE_K) const uint TILE_K = 16;
layout(constant_id = DELTA_MATRIX_JOIN_SPEC_DK) const uint DK = 128;
layout(constant_id = DELTA_MATRIX_JOIN_SPEC_TILES) const uint TILES = 4;
layout(set = 0, binding = DELTA_MATRIX_JOIN_MAPS) readonly buffer maps_block { vec4 maps[]; };
layout(set = 0, binding = DELTA_MATRIX_JOIN_MAPS) buffer maps16_block { uvec4 maps16[]; };
layout(set = 0, binding = DELTA_MATRIX_JOIN_STATE) restrict writeonly buffer state_block { float state[]; };
layout(set = 0, binding = DELTA_MATRIX_JOIN_SEQUENCES) restrict readonly buffer sequences_block {
  sequence sequences[];
};
const uint TILES_K = DK / TILE_K;
// Tiles of M if registers can hold them twice, so that the next segment's are loaded early.
const uint HELD = TILES_K <= 8 ? TILES_K : 0;
const uint COLUMNS = TILES * TILE_N;
const uint PITCH = COLUMNS / 8 + 1;
shared uvec4 high[DK * PITCH], low[DK * PITCH]; // S in f16, and its rounding errors
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, TILE_K, TILE_N, gl_MatrixUseB>
#define SUM coopmat<float, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define SUM16 coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define ROWS gl_CooperativeMatrixLayoutRowMajor

// A subgroup's rows of M, of M's rounding errors, and of N.
struct map {
  LEFT m[TILES_K], lost[TILES_K];
  SUM N[TILES];
};

void fetch_tile(inout map t, uint at, uint row0, uint k) {
  uint from = 2 * (at + DK * args.DVP) + k * TILE_K / 16 * 16 * DK + row0 * 16 + k * TILE_K % 16;
  coopMatLoad(t.m[k], maps16, from / 8, 2, ROWS);
  coopMatLoad(t.lost[k], maps16, (from + DK * DK) / 8, 2, ROWS);
}

void fetch(inout map t, uint at, uint row0, uint column0) {
  [[unroll]] for (uint k = 0; k < HELD; k++) fetch_tile(t, at, row0, k);
  [[unroll]] for (uint r = 0; r < TILES; r++)
    coopMatLoad(t.N[r], maps, (at + row0 * args.DVP + column0 + r * TILE_N) / 4, args.DVP / 4, ROWS);
}

// Shares the subgroup's rows of S with the workgroup.
void put(SUM S[TILES], uint row0) {
  barrier(); // the previous S has been read
  [[unroll]] for (uint r = 0; r < TILES; r++) {
    SUM16 top = SUM16(S[r]);
    coopMatStore(top, high, row0 * PITCH + r * TILE_N / 8, PITCH, ROWS);
    coopMatStore(SUM16(S[r] - SUM(top)), low, row0 * PITCH + r * TILE_N / 8, PITCH, ROWS);
  }
  barrier();
}

// Stores S in place of the segment's N, then replaces S by the state after the segment, whose map is t.
void step(inout SUM S[TILES], inout map t, uint at, uint row0, uint column0) {
  put(S, row0);
  [[unroll]] for (uint r = 0; r < TILES; r++) {
    coopMatStore(SUM16(S[r]), maps16, (at + row0 * args.DVP + column0 + r * TILE_N) / 4, args.DVP / 4, ROWS);
    S[r] = t.N[r];
  }
  [[unroll]] for (uint k = 0; k < TILES_K; k++) {
    if (HELD == 0) fetch_tile(t, at, row0, k);
    [[unroll]] for (uint r = 0; r < TILES; r++) {
      RIGHT x, y;
      coopMatLoad(x, high, k * TILE_K * PITCH + r * TILE_N / 8, PITCH, ROWS);
      coopMatLoad(y, low, k * TILE_K * PITCH + r * TILE_N / 8, PITCH, ROWS);
      S[r] = coopMatMulAdd(t.m[k], x, S[r]);
      S[r] = coopMatMulAdd(t.m[k], y, S[r]);
      S[r] = coopMatMulAdd(t.lost[k], x, S[r]);
    }
  }
}

void main() {
  const sequence seq = sequences[gl_WorkGroupID.z];
  const uint head = gl_WorkGroupID.y, column0 = gl_WorkGroupID.x * COLUMNS, row0 = gl_SubgroupID * TILE_M;
  const uint chunks = (seq.T + args.tokens - 1) / args.tokens, each = (chunks + args.segments - 1) / args.segments;
  if (chunks == 0) return;
  const uint used = (chunks + each - 1) / each, block = args.Hv * DELTA_MATRIX_MAP(DK, args.DVP);
  uint at = (gl_WorkGroupID.z * args.segments * args.Hv + head) * DELTA_MATRIX_MAP(DK, args.DVP);
  SUM S[TILES];
  [[unroll]] for (uint r = 0; r < TILES; r++)
    coopMatLoad(S[r], maps, (at + row0 * args.DVP + column0 + r * TILE_N) / 4, args.DVP / 4, ROWS);
  map even, odd;
  if (used > 1) fetch(odd, at + block, row0, column0);
  // Two at a time, so that loads in flight are not copied to other registers, which would wait for them.
  for (uint s = 1; s < used; s += 2) {
    at += block;
    if (s + 1 < used) fetch(even, at + block, row0, column0);
    step(S, odd, at, row0, column0);
    if (s + 1 == used) break;
    at += block;
    if (s + 2 < used) fetch(odd, at + block, row0, column0);
    step(S, even, at, row0, column0);
  }
  put(S, row0);
  const uint state_at = seq.slot * args.state_stride + head * args.Dk * args.Dv;
  for (uint i = gl_LocalInvocationIndex; i < DK * COLUMNS; i += gl_WorkGroupSize.x) {
    uint d = i / COLUMNS, c = i % COLUMNS, from = d * PITCH + c / 8, j = c % 8;
    if (d < args.Dk && column0 + c < args.Dv)
      state[state_at + d * args.Dv + column0 + c] =
          unpackHalf2x16(high[from][j / 2])[j % 2] + unpackHalf2x16(low[from][j / 2])[j % 2];
  }
}
