#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// attention.comp for many tokens on cooperative matrices (coopmat; FlashAttention, Dao et al. 2022): operands in f16,
// sums and softmax in f32. With m_i the maximum of row i so far, which grows from block to block of keys,
//   S = scale log2(e) Q K^T    P = 2^(S - m)    O <- 2^(m_before - m) O + P V    o = O / sum P
// qkv (T, heads d ...), caches (slots, capacity, kv_heads, d) with position p at p % capacity, o (T, heads d).
// Workgroups (kv_heads ceil(heads / kv_heads / GROUP), parts ceil(T / TOKENS), B): a subgroup owns TILE_M rows of Q and O
// in registers, where row r is token r / GROUP of head r % GROUP. All subgroups share the KEYS keys and values that are
// staged in f16. S becomes P in the subgroup's own part of shared memory, where each lane knows its rows and columns.
// Later tokens see more, so they come first. Any d, T; T <= capacity, and T + window - 1 <= capacity in a ring.
//
// SPLIT: a few tokens after many have few workgroups, so each has a part of the keys and writes O, m and sum P to
// records, which attention_join.comp joins. How many parts are used follows from the position.
#include "attention_matrix.h"
layout(local_size_x_id = ATTENTION_MATRIX_SPEC_LANES) in;
layout(constant_id = ATTENTION_MATRIX_SPEC_SUBGROUP) const uint SUBGROUP = 32;
layout(constant_id = ATTENTION_MATRIX_SPEC_TILE_M) const uint TILE_M = 16;
layout(constant_id = ATTENTION_MATRIX_SPEC_TILE_N) const uint TILE_N = 16;
layout(constant_id = ATTENTION_MATRIX_SPEC_TILE_K) const uint TILE_K = 16;
layout(constant_id = ATTENTION_MATRIX_SPEC_D) const uint D = 64;
layout(constant_id = ATTENTION_MATRIX_SPEC_KEYS) const uint KEYS = 32;
layout(constant_id = ATTENTION_MATRIX_SPEC_GROUP) const uint GROUP = 1;
layout(constant_id = ATTENTION_MATRIX_SPEC_AHEAD) const uint AHEAD = 1;
layout(constant_id = ATTENTION_MATRIX_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = ATTENTION_MATRIX_SPEC_O_ALIGNED) const uint O_ALIGNED = 0;
layout(constant_id = ATTENTION_MATRIX_SPEC_LOCKSTEP) const uint LOCKSTEP = 0;
layout(constant_id = ATTENTION_MATRIX_SPEC_SPLIT) const uint SPLIT = 0;
layout(set = 0, binding = ATTENTION_O) restrict writeonly buffer o_block { float16_t o[]; };
layout(set = 0, binding = ATTENTION_O) restrict writeonly buffer o8_block { uvec4 o8[]; };
layout(set = 0, binding = ATTENTION_QKV) restrict readonly buffer qkv_block { float qkv[]; };
layout(set = 0, binding = ATTENTION_CACHE_K) restrict readonly buffer cache_k_block { float cache_k[]; };
layout(set = 0, binding = ATTENTION_CACHE_K) restrict readonly buffer cache_k4_block { vec4 cache_k4[]; };
layout(set = 0, binding = ATTENTION_CACHE_V) restrict readonly buffer cache_v_block { float cache_v[]; };
layout(set = 0, binding = ATTENTION_CACHE_V) restrict readonly buffer cache_v4_block { vec4 cache_v4[]; };
layout(set = 0, binding = ATTENTION_SEQUENCES) restrict readonly buffer sequences_block {
  sequence sequences[];
};
layout(set = 0, binding = ATTENTION_MATRIX_RECORDS) restrict writeonly buffer records_block { vec4 records[]; };
#include "attention_parts.glsl"

#define SUM coopmat<float, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define SUM16 coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_N, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, TILE_M, TILE_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, TILE_K, TILE_N, gl_MatrixUseB>
#define ROWS gl_CooperativeMatrixLayoutRowMajor
#define COLS gl_CooperativeMatrixLayoutColumnMajor

const uint LANES = gl_WorkGroupSize.x;
const uint SUBGROUPS = LANES / SUBGROUP;
const uint TOKENS = SUBGROUPS * TILE_M / GROUP;
const uint DP = (D + 15) / 16 * 16, RECORD = ATTENTION_MATRIX_RECORD(D);
const uint TILES_S = KEYS / TILE_N, TILES_O = DP / TILE_N, STEPS_S = DP / TILE_K, STEPS_O = KEYS / TILE_K;
const uint D8 = DP / 8, PITCH = D8 + 1; // uvec4 of a row; pitches are odd, which spreads rows over banks
const uint EACH = (KEYS * D8 + LANES - 1) / LANES;
const uint OWN_PITCH = KEYS / 4 + 1, OWN = TILE_M * OWN_PITCH;
const uint SHARERS = SUBGROUP / TILE_M;  // lanes that share a row of S
const uint SHARE = KEYS / SHARERS / 4;    // vec4 of that row in each lane; even
const float LOWEST = -3.402823466e38;    // stands for no key; finite, so that differences are defined
const float LOG2_E = 1.44269504088896;
shared uvec4 keys[KEYS * PITCH];
shared uvec4 values[KEYS * PITCH];
shared uvec4 own[SUBGROUPS * OWN]; // a part per subgroup: blocks of Q, then S in f32, then P, then blocks of O
shared float exchange[LANES];
shared vec4 factors[SUBGROUPS * TILE_M / 4]; // factors of the rows of O

// On lavapipe a subgroup runs in lockstep, and a subgroup barrier would stop the whole workgroup.
void subgroup_barrier() {
  if (LOCKSTEP == 0)
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

uvec4 half8(vec4 low, vec4 high) {
  low = clamp(low, -65504.0, 65504.0);
  high = clamp(high, -65504.0, 65504.0);
  return uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
}

vec4 next_k[2 * EACH], next_v[2 * EACH];

// Four elements of a row from column j on, zeros from D on.
vec4 key4(uint at, uint j) {
  if (ALIGNED != 0) return D == DP || j < D ? cache_k4[(at + j) / 4] : vec4(0.0);
  vec4 x = vec4(0.0);
  [[unroll]] for (uint i = 0; i < 4; i++)
    if (j + i < D) x[i] = cache_k[at + j + i];
  return x;
}

vec4 value4(uint at, uint j) {
  if (ALIGNED != 0) return D == DP || j < D ? cache_v4[(at + j) / 4] : vec4(0.0);
  vec4 x = vec4(0.0);
  [[unroll]] for (uint i = 0; i < 4; i++)
    if (j + i < D) x[i] = cache_v[at + j + i];
  return x;
}

// Loads `count` keys and values from index `ring` of the cache on; past the last one it is loaded again.
void fetch(uint cache_at, uint ring, uint count) {
  [[unroll]] for (uint n = 0; n < EACH; n++) {
    uint i = n * LANES + gl_LocalInvocationIndex, place = ring + min(i / D8, count - 1), j = i % D8 * 8;
    uint at = cache_at + (place < args.capacity ? place : place - args.capacity) * args.kv_heads * D;
    next_k[2 * n] = key4(at, j);
    next_k[2 * n + 1] = key4(at, j + 4);
    next_v[2 * n] = value4(at, j);
    next_v[2 * n + 1] = value4(at, j + 4);
  }
}

void put() {
  [[unroll]] for (uint n = 0; n < EACH; n++) {
    uint i = n * LANES + gl_LocalInvocationIndex;
    if (KEYS * D8 % LANES == 0 || i < KEYS * D8) {
      keys[i / D8 * PITCH + i % D8] = half8(next_k[2 * n], next_k[2 * n + 1]);
      values[i / D8 * PITCH + i % D8] = half8(next_v[2 * n], next_v[2 * n + 1]);
    }
  }
}

void main() {
  const uint lane = gl_SubgroupInvocationID, mine = gl_SubgroupID * OWN, row0 = gl_SubgroupID * TILE_M;
  const heads_of_group heads = heads_of(gl_WorkGroupID.x);
  const sequence s = sequences[gl_WorkGroupID.z];
  const uint parts = SPLIT != 0 ? args.parts : 1;
  const uint t0 = (gl_NumWorkGroups.y / parts - 1 - gl_WorkGroupID.y / parts) * TOKENS;
  if (t0 >= s.T) return;
  const uint count = min(TOKENS, s.T - t0), pos0 = s.pos + t0, end = pos0 + count;
  const uint cache_at = s.slot * args.cache_stride + heads.kv_head * D;
  // The workgroup's keys: from p0 to before `last`.
  uint p0 = first_seen(pos0);
  uint last = end;
  if (SPLIT != 0) {
    const uint each = keys_of_part(end - p0);
    p0 += gl_WorkGroupID.y % parts * each;
    if (p0 >= end) return;
    last = min(end, p0 + each);
  }

  // Loads Q by tiles; unused rows have the data of any token.
  LEFT Q[STEPS_S];
  const uint K8 = TILE_K / 8;
  [[unroll]] for (uint x = 0; x < STEPS_S; x++) {
    for (uint i = lane; i < TILE_M * K8; i += SUBGROUP) {
      uint r = row0 + i / K8, j = x * TILE_K + i % K8 * 8;
      uint from = (s.row + t0 + min(r / GROUP, count - 1)) * args.qkv_stride + (heads.first + min(r % GROUP, heads.count - 1)) * D;
      vec4 low = vec4(0.0), high = vec4(0.0);
      [[unroll]] for (uint k = 0; k < 4; k++) {
        if (D == DP || j + k < D) low[k] = qkv[from + j + k];
        if (D == DP || j + 4 + k < D) high[k] = qkv[from + j + 4 + k];
      }
      const float scale = args.scale * LOG2_E;
      own[mine + i / K8 * OWN_PITCH + i % K8] = half8(scale * low, scale * high);
    }
    subgroup_barrier();
    coopMatLoad(Q[x], own, mine, OWN_PITCH, ROWS);
    subgroup_barrier();
  }

  SUM O[TILES_O];
  [[unroll]] for (uint j = 0; j < TILES_O; j++) O[j] = SUM(0.0);
  const uint row = lane / SHARERS, sharer = lane % SHARERS;
  const uint position = pos0 + (row0 + row) / GROUP; // position of the lane's row
  float top = LOWEST, sum = 0.0;                     // of the row; over the lane's part of it
  // The keys that all of the subgroup's rows see, and those that any of them sees.
  const bool idle = row0 / GROUP >= count;
  const uint low_position = pos0 + row0 / GROUP, high_position = min(pos0 + (row0 + TILE_M - 1) / GROUP, end - 1);

  uint ring = p0 % args.capacity;
  if (AHEAD != 0) fetch(cache_at, ring, min(KEYS, last - p0));
  for (; p0 < last; p0 += KEYS) {
    if (AHEAD == 0) fetch(cache_at, ring, min(KEYS, last - p0));
    ring += KEYS;
    if (ring >= args.capacity) ring -= args.capacity;
    barrier();
    put();
    barrier();
    if (AHEAD != 0 && p0 + KEYS < last) fetch(cache_at, ring, min(KEYS, last - p0 - KEYS));
    if (idle || p0 > high_position || p0 + KEYS <= first_seen(low_position)) continue;

    SUM S[TILES_S];
    [[unroll]] for (uint j = 0; j < TILES_S; j++) S[j] = SUM(0.0);
    [[unroll]] for (uint x = 0; x < STEPS_S; x++)
      [[unroll]] for (uint j = 0; j < TILES_S; j++) {
        RIGHT k;
        coopMatLoad(k, keys, j * TILE_N * PITCH + x * TILE_K / 8, PITCH, COLS);
        S[j] = coopMatMulAdd(Q[x], k, S[j]);
      }
    [[unroll]] for (uint j = 0; j < TILES_S; j++)
      coopMatStore(S[j], own, mine + j * TILE_N / 4, OWN_PITCH, ROWS);
    subgroup_barrier();

    const uint at = mine + row * OWN_PITCH;
    vec4 score[SHARE];
    [[unroll]] for (uint n = 0; n < SHARE; n++) score[n] = uintBitsToFloat(own[at + sharer * SHARE + n]);
    if (p0 + KEYS - 1 > low_position || p0 < first_seen(high_position))
      [[unroll]] for (uint n = 0; n < SHARE; n++)
        [[unroll]] for (uint k = 0; k < 4; k++) {
          uint p = p0 + (sharer * SHARE + n) * 4 + k;
          if (p > position || p < first_seen(position)) score[n][k] = LOWEST;
        }
    float most = top;
    [[unroll]] for (uint n = 0; n < SHARE; n++)
      most = max(most, max(max(score[n].x, score[n].y), max(score[n].z, score[n].w)));
    if (SHARERS > 1) {
      exchange[gl_SubgroupID * SUBGROUP + lane] = most;
      subgroup_barrier();
      [[unroll]] for (uint i = 0; i < SHARERS; i++)
        most = max(most, exchange[gl_SubgroupID * SUBGROUP + row * SHARERS + i]);
    }
    const float shrink = exp2(top - most), grew = most > top ? 1.0 : 0.0;
    sum *= shrink;
    top = most;
    [[unroll]] for (uint n = 0; n < SHARE; n++) {
      [[unroll]] for (uint k = 0; k < 4; k++) score[n][k] = score[n][k] == LOWEST ? 0.0 : exp2(score[n][k] - most);
      sum += score[n].x + score[n].y + score[n].z + score[n].w;
    }
    [[unroll]] for (uint n = 0; n < SHARE / 2; n++)
      own[at + sharer * (SHARE / 2) + n] =
          uvec4(packHalf2x16(score[2 * n].xy), packHalf2x16(score[2 * n].zw), packHalf2x16(score[2 * n + 1].xy),
                packHalf2x16(score[2 * n + 1].zw));
    if (sharer == 0) factors[(row0 + row) / 4][row % 4] = shrink;
    subgroup_barrier();
    if (subgroupMax(grew) > 0.0) { // a load with stride 0 copies one column to all columns
      SUM factor;
      coopMatLoad(factor, factors, row0 / 4, 0, COLS);
      [[unroll]] for (uint j = 0; j < TILES_O; j++) O[j] = factor * O[j];
    }
    [[unroll]] for (uint x = 0; x < STEPS_O; x++) {
      LEFT p;
      coopMatLoad(p, own, mine + x * TILE_K / 8, OWN_PITCH, ROWS);
      [[unroll]] for (uint j = 0; j < TILES_O; j++) {
        RIGHT v;
        coopMatLoad(v, values, x * TILE_K * PITCH + j * TILE_N / 8, PITCH, ROWS);
        O[j] = coopMatMulAdd(p, v, O[j]);
      }
    }
  }

  exchange[gl_SubgroupID * SUBGROUP + lane] = sum;
  subgroup_barrier();
  float total = 0.0;
  [[unroll]] for (uint i = 0; i < SHARERS; i++) total += exchange[gl_SubgroupID * SUBGROUP + row * SHARERS + i];
  if (SPLIT != 0) {
    if (idle) return;
    const uint workgroup = (gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x;
    const uint from = (workgroup + gl_WorkGroupID.x) * SUBGROUPS * TILE_M + row0, N4 = TILE_N / 4;
    [[unroll]] for (uint j = 0; j < TILES_O; j++) {
      coopMatStore(O[j], own, mine, OWN_PITCH, ROWS);
      subgroup_barrier();
      for (uint i = lane; i < TILE_M * N4; i += SUBGROUP)
        records[(from + i / N4) * RECORD + j * N4 + i % N4] = uintBitsToFloat(own[mine + i / N4 * OWN_PITCH + i % N4]);
      subgroup_barrier();
    }
    if (sharer == 0) records[(from + row) * RECORD + RECORD - 1] = vec4(top, total, 0.0, 0.0);
    return;
  }
  if (sharer == 0) factors[(row0 + row) / 4][row % 4] = 1.0 / total;
  subgroup_barrier();
  SUM factor;
  coopMatLoad(factor, factors, row0 / 4, 0, COLS);
  const uint N8 = TILE_N / 8;
  [[unroll]] for (uint j = 0; j < TILES_O; j++) {
    coopMatStore(SUM16(factor * O[j]), own, mine, OWN_PITCH, ROWS);
    subgroup_barrier();
    for (uint i = lane; i < TILE_M * N8; i += SUBGROUP) {
      uint r = row0 + i / N8, t = r / GROUP, c = j * TILE_N + i % N8 * 8;
      uint to = (s.row + t0 + t) * args.o_stride + (heads.first + r % GROUP) * D + c;
      uvec4 x = own[mine + i / N8 * OWN_PITCH + i % N8];
      if (t >= count || r % GROUP >= heads.count || c >= D) continue;
      if (O_ALIGNED != 0)
        o8[to / 8] = x;
      else
        [[unroll]] for (uint k = 0; k < 8; k++)
          if (c + k < D) o[to + k] = float16_t(unpackHalf2x16(x[k / 2])[k % 2]);
    }
    subgroup_barrier();
  }
}
