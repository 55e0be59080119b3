// mamba2_matrix.glsl: what the coopmat kernels of Mamba-2's chunks share: the chunk and heads of a workgroup, decays,
// and staging of f16 operands in shared memory. Needs the buffers g, dt, xBC, xBC4 and sequences.
layout(local_size_x_id = MAMBA2_MATRIX_SPEC_LANES) in;
layout(constant_id = MAMBA2_MATRIX_SPEC_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = MAMBA2_MATRIX_SPEC_TILE_M) const uint TILE_M = 16;
layout(constant_id = MAMBA2_MATRIX_SPEC_TILE_N) const uint TILE_N = 16;
layout(constant_id = MAMBA2_MATRIX_SPEC_TILE_K) const uint TILE_K = 16;
layout(constant_id = MAMBA2_MATRIX_SPEC_C) const uint C = 64;
layout(constant_id = MAMBA2_MATRIX_SPEC_N) const uint N = 128;
layout(constant_id = MAMBA2_MATRIX_SPEC_P) const uint P = 64;
layout(constant_id = MAMBA2_MATRIX_SPEC_HEADS) const uint HEADS = 1;
layout(constant_id = MAMBA2_MATRIX_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = MAMBA2_MATRIX_SPEC_FOURS) const uint FOURS = 0;
layout(constant_id = MAMBA2_MATRIX_SPEC_LOCKSTEP) const uint LOCKSTEP = 0;
#include "mamba2_load.glsl"

#define SUM coopmat<float, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define SUM16 coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, TILE_K, TILE_N, gl_MatrixUseB>
#define ROWS gl_CooperativeMatrixLayoutRowMajor
#define COLS gl_CooperativeMatrixLayoutColumnMajor

const uint LANES = gl_WorkGroupSize.x;
const uint SUBGROUPS = LANES / SUBGROUP;
const uint NP = (N + 15) / 16 * 16, PP = (P + 15) / 16 * 16;
const uint N8 = NP / 8, P8 = PP / 8;                 // uvec4 of a row
const uint N_PITCH = N8 + 1, P_PITCH = P8 + 1;       // odd, which spreads rows over banks
const uint RECORD = MAMBA2_MATRIX_RECORD(NP, PP) / 2; // uvec4
const uint GATES = HEADS * C, GATES_EACH = (GATES + LANES - 1) / LANES;
const float LOWEST_G = -1e4; // e^-104 is about the smallest f32; sums of this stay finite
shared vec2 G[GATES];        // sums of g up to and including a token, and their rounding errors
shared vec4 sizes[GATES / 4]; // dt

// The work of a workgroup: `count` tokens from `row` on, heads head0 ... head0 + heads - 1, all of one group.
struct part {
  uint row, count, head0, heads, group;
  uint chunk, slot; // the chunk's index in its sequence; the sequence's slot
};

// False: the workgroup has no work.
bool part_of(out part w) {
  uint chunk = gl_WorkGroupID.x, z = 0;
  while (z < args.B && chunk >= (sequences[z].T + C - 1) / C) chunk -= (sequences[z++].T + C - 1) / C;
  if (z == args.B) return false; // the host assumes a partial chunk at the end of every sequence
  const uint each = args.heads / args.groups, across = (each + HEADS - 1) / HEADS;
  w.chunk = chunk;
  w.slot = sequences[z].slot;
  w.row = sequences[z].row + chunk * C;
  w.count = min(C, sequences[z].T - chunk * C);
  w.group = gl_WorkGroupID.y / across;
  w.head0 = w.group * each + gl_WorkGroupID.y % across * HEADS;
  w.heads = min(HEADS, (w.group + 1) * each - w.head0);
  return true;
}

uint record_of(const part w, uint h) { return (gl_WorkGroupID.x * args.heads + w.head0 + h) * RECORD; }

// Adds two values with twice the digits of f32 (Knuth's exact sum).
vec2 sum_of(vec2 a, vec2 b) {
  precise float sum = a.x + b.x, added = sum - a.x;
  precise float lost = (a.x - (sum - added)) + (b.x - added) + (a.y + b.y);
  return vec2(sum, lost);
}

// Computes G and sizes of all heads; past the end G stays constant and sizes are 0. Each round sums twice as many
// tokens. Ends with a barrier.
void make_gates(const part w) {
  vec2 sums[GATES_EACH];
  [[unroll]] for (uint n = 0; n < GATES_EACH; n++) {
    uint i = n * LANES + gl_LocalInvocationIndex, t = i % C, h = i / C;
    bool inside = t < w.count && h < w.heads;
    sums[n] = vec2(inside ? max(g[(w.row + t) * args.g_stride + w.head0 + h], LOWEST_G) : 0.0, 0.0);
    float size = inside ? dt[(w.row + t) * args.dt_stride + w.head0 + h] : 0.0;
    if (i < GATES) G[i] = sums[n], sizes[i / 4][i % 4] = size;
  }
  barrier();
  for (uint step = 1; step < C; step *= 2) {
    [[unroll]] for (uint n = 0; n < GATES_EACH; n++) {
      uint i = n * LANES + gl_LocalInvocationIndex;
      if (i < GATES && i % C >= step) sums[n] = sum_of(sums[n], G[i - step]);
    }
    barrier();
    [[unroll]] for (uint n = 0; n < GATES_EACH; n++) {
      uint i = n * LANES + gl_LocalInvocationIndex;
      if (i < GATES) G[i] = sums[n];
    }
    barrier();
  }
}

// e^(G_i - G_j) for i >= j, any value up to 1 for i < j.
float decay_between(uint h, uint i, uint j) {
  precise vec2 d = G[h * C + i] - G[h * C + j];
  return exp(min(d.x + d.y, 0.0));
}

// On lavapipe a subgroup runs in lockstep, and a subgroup barrier would stop the whole workgroup.
void subgroup_barrier() {
  if (LOCKSTEP == 0)
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

struct eight {
  vec4 low, high;
};

// Group i of eight elements of the chunk's tokens. Each token has n elements from column `from` of xBC on, in `eights`
// groups. Past the last token it is read again; past the n elements there are zeros.
eight load8(const part w, uint i, uint eights, uint from, uint n) {
  uint at = (w.row + min(i / eights, w.count - 1)) * args.xBC_stride + from, d = i % eights * 8;
  return eight(load4(at, d, n), load4(at, d + 4, n));
}

uvec4 half8(eight x) {
  vec4 low = clamp(x.low, -65504.0, 65504.0), high = clamp(x.high, -65504.0, 65504.0);
  return uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
}
