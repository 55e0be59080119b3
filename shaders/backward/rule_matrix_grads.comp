#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// The part of the delta rule's backward pass that runs for all blocks of steps in parallel, from S before the block, dS
// after it, V' and Z. G_i is the sum of the log decays up to step i of the block, n its last step,
// D_ij = e^(G_i - G_j), s the scale. Sums are over all value columns:
//   B = dO V'^T   F = s B * D (lower)   M = -(Z V'^T) * D (strictly lower)
//   dQ += s e^G * (dO S^T) + F K
//   dK += F^T Q + e^(Gn - G) * (V' dS^T) - e^G * (Z S^T) + (M + M^T) K
//   dV += Z       dbeta += Z.V' / beta^2
// dg of a step is the sum of the terms that its decay multiplies. It is not computed as a difference of prefix sums,
// because strong decay would magnify their rounding. With X = (B * s Q K^T - (Z V'^T) * K K^T) * D, strictly lower,
//   dg_t += sum_{i>=t} a_i + sum_{j<t} c_j + sum_{i>=t, j<t} X_ij + e^Gn <S, dS>
//   a_i = e^G_i (s (dO S^T)_i.Q_i - (Z S^T)_i.K_i)     c_j = e^(Gn - G_j) (V' dS^T)_j.K_j
// a_i is computed as the row sum of dQ * Q + dK * K, in which c_i is too, minus c_i. This one subtraction is harmless:
// its f32 rounding is smaller than that of the 16-bit operands.
// Workgroups (H, blocks): a key head and its value heads, one after another, so that no two workgroups add to the same
// gradient. A subgroup owns OWN tiles of the key's columns, for all steps or for one of SPLIT parts of them.
#include "rule_matrix.h"
layout(local_size_x_id = RULE_MATRIX_SPEC_LANES) in;
layout(constant_id = RULE_MATRIX_SPEC_LANES) const uint LANES = 256;
layout(constant_id = RULE_MATRIX_SPEC_BLOCK) const uint BLOCK = 64;
layout(constant_id = RULE_MATRIX_SPEC_DK) const uint DK = 128;
layout(constant_id = RULE_MATRIX_SPEC_DV) const uint DV = 128;
layout(constant_id = RULE_MATRIX_SPEC_N) const uint N = 1;
layout(constant_id = RULE_MATRIX_SPEC_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = RULE_MATRIX_SPEC_TILE) const uint TILE = 16;
layout(constant_id = RULE_MATRIX_SPEC_LOCKSTEP) const uint LOCKSTEP = 0;
layout(constant_id = RULE_MATRIX_SPEC_GATED) const uint GATED = 1;
layout(constant_id = RULE_MATRIX_SPEC_WHOLE) const uint WHOLE = 1;
layout(constant_id = RULE_MATRIX_SPEC_SPLIT) const uint SPLIT = 1;
layout(constant_id = RULE_MATRIX_SPEC_OWN) const uint OWN = 1;
layout(constant_id = RULE_MATRIX_SPEC_SCORES) const uint SCORES = 1280;
layout(constant_id = RULE_MATRIX_SPEC_POOL) const uint POOL = 2432;
layout(set = 0, binding = RULE_MATRIX_ROWS) readonly buffer rows_block { uvec4 rows[]; };
layout(set = 0, binding = RULE_MATRIX_GRADS_GATES) restrict readonly buffer gates_block { float gates[]; };
layout(set = 0, binding = RULE_MATRIX_STATES) restrict readonly buffer states_block { uvec4 states[]; };
layout(set = 0, binding = RULE_MATRIX_GRADS_DQKV) buffer dqkv_block { float dqkv[]; };
layout(set = 0, binding = RULE_MATRIX_GRADS_DQKV) buffer dqkv4_block { vec4 dqkv4[]; };
layout(set = 0, binding = RULE_MATRIX_GRADS_DBETA) restrict buffer dbeta_block { float dbeta[]; };
layout(set = 0, binding = RULE_MATRIX_GRADS_DG) restrict buffer dg_block { float dg[]; };
#include "rule_matrix_block.glsl"

#define LEFT coopmat<float16_t, gl_ScopeSubgroup, TILE, TILE, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, TILE, TILE, gl_MatrixUseB>
#define SUM coopmat<float, gl_ScopeSubgroup, TILE, TILE, gl_MatrixUseAccumulator>
#define SUM16 coopmat<float16_t, gl_ScopeSubgroup, TILE, TILE, gl_MatrixUseAccumulator>
#define BY_ROWS gl_CooperativeMatrixLayoutRowMajor
#define BY_COLUMNS gl_CooperativeMatrixLayoutColumnMajor

const uint SUBGROUPS = LANES / SUBGROUP, T4 = TILE / 4, T8 = TILE / 8, K8 = DK / 8, V8 = DV / 8;
const uint TILES_B = BLOCK / TILE, TILES_EACH = TILES_B / SPLIT; // of steps; those of a subgroup
const uint GROUPS = SUBGROUPS / SPLIT;                           // of subgroups, with OWN tiles of columns each
const uint COLUMNS = GROUPS * OWN * TILE, ROUNDS = (DK + COLUMNS - 1) / COLUMNS;
const uint JOBS = TILES_B * (TILES_B + 1) / 2, JOBS_EACH = (JOBS + SUBGROUPS - 1) / SUBGROUPS; // lower tiles
const uint SLAB = (DK | DV) % 32 == 0 ? 32 : 16; // columns of values that are staged at once
const uint WIDE = (DK | DV) % 64 == 0 ? 64 : SLAB; // the same, for pairs
const uint W_PITCH = WIDE / 8 + 1, S_PITCH = SLAB / 8 + 1;
const uint V_SLAB = GATED != 0 ? SLAB : WIDE, V_PITCH = V_SLAB / 8 + 1; // of V' in columns()
const uint D_PITCH = BLOCK / 4 + 1, F_PITCH = BLOCK / 8 + 1, C_PITCH = COLUMNS / 8 + 1, A_PITCH = T4 + 1;
// Slabs of tensors, or D and X, or a round's columns of K or Q, or two tiles of each subgroup. From SCORES on F,
// then M, f16, whose upper tiles are not read. At the end of a round it stages gradients, f32: all of it if there is
// one round, else what is below SCORES.
shared uvec4 pool[POOL];
const uint PAIRS = SCORES + BLOCK * F_PITCH;
const uint AT_ONCE = ROUNDS > 1 ? 1 : TILES_EACH; // tiles of gradients that a subgroup stages at once
const uint G_PITCH = COLUMNS / 4 + 1;
shared vec4 unit[TILE * T4];                                  // the identity
shared float sums[BLOCK], betas[BLOCK], diagonal[BLOCK];      // G; the diagonal of Z V'^T
shared vec4 fade_in[BLOCK / 4], fade_out[BLOCK / 4];          // e^G, e^(Gn - G)
const uint DIAGONALS = TILE * (BLOCK + TILE);                  // tiles with the diagonal, and one for all others
const uint AT_ROWS = 2 * GROUPS * BLOCK > DIAGONALS ? 2 * GROUPS * BLOCK : DIAGONALS;
shared float at_rows[AT_ROWS];                                // these tiles; then a and c by group
shared float carried[SUBGROUPS], crossing[BLOCK];             // <S, dS>; rectangles of X

uint lane, mine, stager, part, row8;
uint q_at, k_at, v_at, do_at, z_at; // of the block in rows
float by;   // removes the factor by which dO of the sequence was scaled
bool adds;  // whether to add to existing gradients of keys and queries
bool whole; // WHOLE, and all steps of the block are there

void subgroup_barrier() {
  if (LOCKSTEP == 0)
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

float number(uint at, uint i) { return uintBitsToFloat(pool[at + i / 4][i % 4]); }

// ---------------------------------------------------------------- gates

void make_gates(uint block, uint head) {
  const uint i = stager;
  for (uint r = i; r < BLOCK; r += LANES) {
    const uint at = (block * BLOCK + r) * args.Hv + head;
    betas[r] = gates[at];
    diagonal[r] = max(gates[args.g_at + at], -110.0); // e^-104 is about the smallest f32
  }
  if (GATED == 0) return;
  barrier();
  for (uint r = i; r < BLOCK; r += LANES) {
    float sum = 0.0;
    [[unroll]] for (uint j = 0; j < BLOCK; j++) sum += j <= r ? diagonal[j] : 0.0; // all loads before the first sum
    sums[r] = sum;
  }
  barrier();
  for (uint r = i; r < BLOCK; r += LANES) {
    fade_in[r / 4][r % 4] = exp(sums[r]);
    fade_out[r / 4][r % 4] = exp(sums[BLOCK - 1] - sums[r]);
  }
}

void make_decays() {
  for (uint j = stager; j < BLOCK * BLOCK / 4; j += LANES) {
    const uint r = j / (BLOCK / 4), c = j % (BLOCK / 4) * 4;
    vec4 d;
    [[unroll]] for (uint k = 0; k < 4; k++) d[k] = c + k > r ? 0.0 : GATED != 0 ? exp(sums[r] - sums[c + k]) : 1.0;
    pool[r * D_PITCH + c / 4] = floatBitsToUint(d);
  }
}

#include "rule_matrix_pairs.glsl"
#include "rule_matrix_columns.glsl"

// ---------------------------------------------------------------- values and gates

// dV of a block that is not whole.
void add_values(uint v_from) {
  for (uint i = stager; i < BLOCK * DV; i += LANES) {
    const uint r = i / DV, c = i % DV, t = (step0 + r) / N, m = (step0 + r) % N;
    const vec2 z = unpackHalf2x16(rows[z_at + r * row8 + c / 8][c / 2 % 4]);
    const uint at = (row + t) * args.qkv_stride + v_from + m * args.Hv * args.Dv + c;
    if (t < T && c < args.Dv) dqkv[at] = (args.add != 0 ? dqkv[at] : 0.0) + by * z[c % 2];
  }
}

void add_gates(uint head) {
  const uint i = stager;
  for (uint r = i; GATED != 0 && r < BLOCK; r += LANES) {
    float a = 0.0, c = 0.0;
    for (uint n = 0; n < GROUPS; n++) {
      a += at_rows[n * BLOCK + r];
      c += at_rows[(GROUPS + n) * BLOCK + r];
    }
    at_rows[r] = a - c; // no other invocation reads or writes these two elements
    at_rows[GROUPS * BLOCK + r] = c;
  }
  barrier();
  for (uint r = i; r < BLOCK; r += LANES) {
    const uint t = (step0 + r) / N, m = (step0 + r) % N;
    if (t >= T) break;
    const float beta = betas[r];
    // rule_matrix_small computes dbeta where beta is small.
    const float d = abs(beta) < RULE_MATRIX_SMALL_BETA ? 0.0 : by * diagonal[r] / (beta * beta);
    dbeta[(row + t) * args.beta_stride + m * args.Hv + head] += d;
    if (GATED == 0 || m > 0) continue;
    float sum = 0.0;
    for (uint n = 0; n < SUBGROUPS; n++) sum += carried[n];
    sum = crossing[r] + exp(sums[BLOCK - 1]) * sum;
    for (uint n = r; n < BLOCK; n++) sum += at_rows[n];
    for (uint n = 0; n < r; n++) sum += at_rows[GROUPS * BLOCK + n];
    dg[(row + t) * args.g_stride + head] += by * sum;
  }
}

void main() {
  const uint key_head = gl_WorkGroupID.x, block = gl_WorkGroupID.y, i = gl_LocalInvocationIndex;
  if (!find_block(block)) return;
  lane = gl_SubgroupInvocationID;
  mine = gl_SubgroupID;
  part = mine * 2 * TILE * A_PITCH;
  stager = i;
  row8 = RULE_MATRIX_ROW(args.H, args.Hv, DK, DV) / 8;
  q_at = block * BLOCK * row8 + key_head * K8;
  k_at = q_at + args.H * K8;
  for (uint e = i; e < TILE * TILE; e += LANES) unit[e / 4][e % 4] = e / TILE == e % TILE ? 1.0 : 0.0;
  adds = args.add != 0;
  whole = WHOLE != 0 && step0 + BLOCK <= T;
  for (uint n = 0; n < args.Hv / args.H; n++) { // value heads of the key head
    const uint head = (n / args.share * args.H + key_head) * args.share + n % args.share;
    v_at = block * BLOCK * row8 + 2 * args.H * K8 + head * V8;
    do_at = v_at + args.Hv * V8;
    z_at = do_at + args.Hv * V8;
    const uint v_from = (1 + N) * args.H * args.Dk + head * args.Dv;
    fetch_values(0);
    float least = 126.0;
    for (uint b = lane; b < block_count; b += SUBGROUP)
      least = min(least, gates[args.scales_at + (first + b) * args.Hv + head]);
    least = subgroupMin(least);
    by = ldexp(1.0, -int(least));
    const float factor = ldexp(1.0, int(max(least - gates[args.scales_at + block * args.Hv + head], -126.0)));
    make_gates(block, head);
    make_pairs(factor, v_from);
    if (GATED != 0) {
      add_rectangles();
      for (uint e = i; e < 2 * GROUPS * BLOCK; e += LANES) at_rows[e] = 0.0;
      if (lane == 0) carried[mine] = 0.0;
    }
    for (uint round = 0; round < ROUNDS; round++)
      columns(round, (block * args.Hv + head) * 2 * DK * V8, key_head, factor);
    if (!whole) add_values(v_from);
    barrier();
    add_gates(head);
    barrier();
    adds = true;
  }
}
