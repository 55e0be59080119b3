#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
// The states between the segments of a sequence (delta_matrix.h): S <- M S + N, segment after segment, and each S takes
// the place of its segment's N. M and S are f16 and the rest that rounding left, three products: S passes through all
// of them, and would lose digits each time.
// Workgroups (DVP / TILE_N, Hv, B): TILE_N value columns of one head of one sequence. A subgroup owns a tile of rows of
// S and needs the same rows of M.
#include "delta_matrix_join.h"
layout(local_size_x_id = DELTA_MATRIX_JOIN_SPEC_LANES) in;
layout(constant_id = DELTA_MATRIX_JOIN_SPEC_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = DELTA_MATRIX_JOIN_SPEC_TILE_M) const uint TILE_M = 16;
layout(constant_id = DELTA_MATRIX_JOIN_SPEC_TILE_N) const uint TILE_N = 16;
layout(constant_id = DELTA_MATRIX_JOIN_SPEC_TILE_K) const uint TILE_K = 16;
layout(constant_id = DELTA_MATRIX_JOIN_SPEC_DK) const uint DK = 128;
layout(set = 0, binding = DELTA_MATRIX_JOIN_MAPS) buffer maps_block { vec4 maps[]; };
layout(set = 0, binding = DELTA_MATRIX_JOIN_MAPS16) readonly buffer maps16_block { uvec4 maps16[]; };
layout(set = 0, binding = DELTA_MATRIX_JOIN_STATE) restrict readonly buffer state_block { float state[]; };
layout(set = 0, binding = DELTA_MATRIX_JOIN_SEQUENCES) restrict readonly buffer sequences_block {
  sequence sequences[];
};
const uint TILES_K = DK / TILE_K;
const uint PITCH = TILE_N / 8 + 1;
shared uvec4 high[DK * PITCH], low[DK * PITCH]; // S; f16
shared float first[DK * TILE_N];
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, TILE_K, TILE_N, gl_MatrixUseB>
#define SUM coopmat<float, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define SUM16 coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define ROWS gl_CooperativeMatrixLayoutRowMajor

void main() {
  const sequence seq = sequences[gl_WorkGroupID.z];
  const uint head = gl_WorkGroupID.y, column0 = gl_WorkGroupID.x * TILE_N, row0 = gl_SubgroupID * TILE_M;
  const uint chunks = (seq.T + args.tokens - 1) / args.tokens, each = (chunks + args.segments - 1) / args.segments;
  if (chunks == 0) return;
  const uint used = (chunks + each - 1) / each, block = DELTA_MATRIX_MAP(DK, args.DVP);
  uint at = (gl_WorkGroupID.z * args.segments * args.Hv + head) * block;
  uint state_at = seq.slot * args.state_stride + head * args.Dk * args.Dv;
  for (uint i = gl_LocalInvocationIndex; i < DK * TILE_N; i += gl_WorkGroupSize.x) {
    uint d = i / TILE_N, c = column0 + i % TILE_N;
    first[i] = d < args.Dk && c < args.Dv ? state[state_at + d * args.Dv + c] : 0.0;
  }
  barrier();
  SUM S;
  coopMatLoad(S, first, row0 * TILE_N, TILE_N, ROWS);
  for (uint s = 0; s < used; s++, at += args.Hv * block) {
    const uint here = at + row0 * args.DVP + column0, m_at = 2 * (at + DK * args.DVP) + row0 * DK;
    SUM next = SUM(0.0);
    if (s + 1 < used) coopMatLoad(next, maps, here / 4, args.DVP / 4, ROWS);
    coopMatStore(S, maps, here / 4, args.DVP / 4, ROWS);
    if (s + 1 == used) break;
    LEFT m[TILES_K], rest[TILES_K];
    [[unroll]] for (uint k = 0; k < TILES_K; k++) {
      coopMatLoad(m[k], maps16, (m_at + k * TILE_K) / 8, DK / 8, ROWS);
      coopMatLoad(rest[k], maps16, (m_at + DK * DK + k * TILE_K) / 8, DK / 8, ROWS);
    }
    SUM16 top = SUM16(S);
    barrier(); // the S before has been read
    coopMatStore(top, high, row0 * PITCH, PITCH, ROWS);
    coopMatStore(SUM16(S - SUM(top)), low, row0 * PITCH, PITCH, ROWS);
    barrier();
    [[unroll]] for (uint k = 0; k < TILES_K; k++) {
      RIGHT x, y;
      coopMatLoad(x, high, k * TILE_K * PITCH, PITCH, ROWS);
      coopMatLoad(y, low, k * TILE_K * PITCH, PITCH, ROWS);
      next = coopMatMulAdd(m[k], x, next);
      next = coopMatMulAdd(m[k], y, next);
      next = coopMatMulAdd(rest[k], x, next);
    }
    S = next;
  }
}
