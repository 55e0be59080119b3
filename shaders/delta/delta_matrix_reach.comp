#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
// Adds to the outputs of a sequence what the states before its segments contribute (delta_matrix.h): o_t += reach_t S,
// on cooperative matrices. Workgroups (parts * DVP / COLUMNS, Hv, B * segments): every parts-th block of ROWS tokens of
// a segment that is not the first, in COLUMNS columns of one head. A subgroup keeps its columns of S as operands.
#include "delta_matrix_reach.h"
layout(local_size_x_id = DELTA_MATRIX_REACH_SPEC_LANES) in;
layout(constant_id = DELTA_MATRIX_REACH_SPEC_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = DELTA_MATRIX_REACH_SPEC_TILE_M) const uint TILE_M = 16;
layout(constant_id = DELTA_MATRIX_REACH_SPEC_TILE_N) const uint TILE_N = 16;
layout(constant_id = DELTA_MATRIX_REACH_SPEC_TILE_K) const uint TILE_K = 16;
layout(constant_id = DELTA_MATRIX_REACH_SPEC_DK) const uint DK = 128;
layout(constant_id = DELTA_MATRIX_REACH_SPEC_COMPUTERS) const uint COMPUTERS = 4;
layout(constant_id = DELTA_MATRIX_REACH_SPEC_TILES) const uint TILES = 2;
layout(constant_id = DELTA_MATRIX_REACH_SPEC_UNIT_O) const uint UNIT_O = 8;
#include "delta_matrix_number.glsl"
#define O_BINDING DELTA_MATRIX_REACH_O
#define O_ACCESS
#include "delta_matrix_output.glsl"
layout(set = 0, binding = DELTA_MATRIX_REACH_REACH) restrict readonly buffer reach_block { uvec4 reach[]; };
layout(set = 0, binding = DELTA_MATRIX_REACH_MAPS) restrict readonly buffer maps16_block { uvec4 maps16[]; };
layout(set = 0, binding = DELTA_MATRIX_REACH_SEQUENCES) restrict readonly buffer sequences_block {
  sequence sequences[];
};
const uint ROWS = DELTA_MATRIX_REACH_ROWS, LANES = COMPUTERS * SUBGROUP, TILES_K = DK / TILE_K;
const uint WIDTH = TILES * TILE_N, W8 = WIDTH / 8, COLUMNS = COMPUTERS * WIDTH; // columns of a subgroup, a workgroup
// 16 bytes each; odd pitches spread rows over banks
const uint K8 = DK / 8, R_PITCH = K8 + 1, S_PITCH = COLUMNS / 8 + 1, P_PITCH = COLUMNS / 4 + 1;
const uint PRODUCTS = ROWS * R_PITCH, BOTH = PRODUCTS + ROWS * P_PITCH;
const uint R_EACH = (ROWS * K8 + LANES - 1) / LANES, O_EACH = (ROWS * W8 + SUBGROUP - 1) / SUBGROUP;
// S, f16; then tokens' reach, f16, and the products, f32
shared uvec4 staged[BOTH > DK * S_PITCH ? BOTH : DK * S_PITCH];
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, TILE_K, TILE_N, gl_MatrixUseB>
#define SUM coopmat<float, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define MATRIX_ROWS gl_CooperativeMatrixLayoutRowMajor
uvec4 next[R_EACH], old[O_EACH];

// Rows past the end have any row's data: they are not written.
void fetch_reach(uint row, uint count, uint head) {
  [[unroll]] for (uint n = 0; n < R_EACH; n++) {
    uint i = n * LANES + gl_LocalInvocationIndex;
    if (ROWS * K8 % LANES == 0 || i < ROWS * K8)
      next[n] = reach[((row + min(i / K8, count - 1)) * args.Hv + head) * K8 + i % K8];
  }
}

uvec4 get8(uint at, uint count) {
  if (UNIT_O == 8) return halves(o8[at / 8]);
  if (UNIT_O == 4) return uvec4(halves(o4[at / 4]), halves(o4[at / 4 + (count > 4 ? 1 : 0)]));
  uvec4 x;
  [[unroll]] for (uint i = 0; i < 4; i++)
    x[i] = packHalf2x16(vec2(o[at + min(2 * i, count - 1)], o[at + min(2 * i + 1, count - 1)]));
  return x;
}

uint sum2(uint x, uint a, uint b) {
  return packHalf2x16(unpackHalf2x16(x) + vec2(uintBitsToFloat(a), uintBitsToFloat(b)));
}

void main() {
  const uint across = args.DVP / COLUMNS, parts = gl_NumWorkGroups.x / across, part = gl_WorkGroupID.x / across;
  const uint column0 = gl_WorkGroupID.x % across * COLUMNS, head = gl_WorkGroupID.y, lane = gl_SubgroupInvocationID;
  const sequence seq = sequences[gl_WorkGroupID.z / args.segments];
  const uint segment = gl_WorkGroupID.z % args.segments, chunks = (seq.T + args.tokens - 1) / args.tokens;
  const uint each = (chunks + args.segments - 1) / args.segments * args.tokens;
  const uint ends = min((segment + 1) * each, seq.T);
  uint t0 = segment * each + part * ROWS;
  if (segment == 0 || t0 >= ends) return;
  fetch_reach(seq.row + t0, ends - t0, head);
  const uint at = (gl_WorkGroupID.z * args.Hv + head) * DELTA_MATRIX_MAP(DK, args.DVP);
  [[unroll]] for (uint i0 = 0; i0 < DK * COLUMNS / 8; i0 += LANES) {
    uint i = i0 + gl_LocalInvocationIndex, d = i / (COLUMNS / 8), c = i % (COLUMNS / 8) * 8;
    if (DK * COLUMNS / 8 % LANES == 0 || i < DK * COLUMNS / 8)
      staged[d * S_PITCH + c / 8] =
          maps16[(at + d * args.DVP + (column0 + c) / TILE_N * TILE_N) / 4 + (column0 + c) % TILE_N / 8];
  }
  barrier();
  const uint own = gl_SubgroupID * WIDTH;
  RIGHT s[TILES_K][TILES];
  [[unroll]] for (uint k = 0; k < TILES_K; k++)
    [[unroll]] for (uint r = 0; r < TILES; r++)
      coopMatLoad(s[k][r], staged, k * TILE_K * S_PITCH + (own + r * TILE_N) / 8, S_PITCH, MATRIX_ROWS);
  barrier();
  for (; t0 < ends; t0 += parts * ROWS) {
    const uint count = ends - t0, next0 = t0 + parts * ROWS;
    [[unroll]] for (uint n = 0; n < R_EACH; n++) {
      uint i = n * LANES + gl_LocalInvocationIndex;
      if (ROWS * K8 % LANES == 0 || i < ROWS * K8) staged[i / K8 * R_PITCH + i % K8] = next[n];
    }
    barrier();
    if (next0 < ends) fetch_reach(seq.row + next0, ends - next0, head);
    [[unroll]] for (uint n = 0; n < O_EACH; n++) {
      uint i = n * SUBGROUP + lane, t = t0 + min(i / W8, count - 1), c = column0 + own + i % W8 * 8;
      if ((ROWS * W8 % SUBGROUP == 0 || i < ROWS * W8) && c < args.Dv)
        old[n] = get8((seq.row + t) * args.o_stride + head * args.Dv + c, args.Dv - c);
    }
    SUM sums[ROWS / TILE_M][TILES];
    [[unroll]] for (uint m = 0; m < ROWS / TILE_M; m++) {
      [[unroll]] for (uint r = 0; r < TILES; r++) sums[m][r] = SUM(0.0);
      [[unroll]] for (uint k = 0; k < TILES_K; k++) {
        LEFT x;
        coopMatLoad(x, staged, m * TILE_M * R_PITCH + k * TILE_K / 8, R_PITCH, MATRIX_ROWS);
        [[unroll]] for (uint r = 0; r < TILES; r++) sums[m][r] = coopMatMulAdd(x, s[k][r], sums[m][r]);
      }
      [[unroll]] for (uint r = 0; r < TILES; r++)
        coopMatStore(sums[m][r], staged, PRODUCTS + m * TILE_M * P_PITCH + (own + r * TILE_N) / 4, P_PITCH,
                     MATRIX_ROWS);
    }
    barrier(); // the tokens' reach has been read; a subgroup's own products are written
    [[unroll]] for (uint n = 0; n < O_EACH; n++) {
      uint i = n * SUBGROUP + lane, t = i / W8, c = column0 + own + i % W8 * 8;
      if ((ROWS * W8 % SUBGROUP == 0 || i < ROWS * W8) && t < count && c < args.Dv) {
        uint from = PRODUCTS + t * P_PITCH + own / 4 + i % W8 * 2;
        uvec4 a = staged[from], b = staged[from + 1], x = old[n];
        x = uvec4(sum2(x.x, a.x, a.y), sum2(x.y, a.z, a.w), sum2(x.z, b.x, b.y), sum2(x.w, b.z, b.w));
        put8((seq.row + t0 + t) * args.o_stride + head * args.Dv + c, args.Dv - c, UNIT_O, x);
      }
    }
  }
}
