#version 450
#extension GL_GOOGLE_include_directive : require
#include "stored.glsl"
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// mamba2_chunk_output.comp on cooperative matrices (coopmat), with operands in f16 and sums in f32. s S is the state
// before the chunk, with s from its record:
//   y_i = d (e^G_i s / d C_i S + sum_{j <= i} M_ij x_j) + D x_i,   M_ij = (C_i . B_j) e^(G_i - G_j) dt_j / d
// d is the largest factor that it divides in a subgroup's rows, so that f16 holds M for any step sizes. xBC (T, heads P
// + 2 groups N), dt, g (T, heads), states: see mamba2_chunk.h, y (T, heads P). Workgroups (chunks, groups ceil(heads /
// groups / HEADS)): a subgroup owns TILE_M tokens. It keeps C and C B^T, which the heads of a group share, in
// registers. C B^T becomes M in the subgroup's own part of shared memory, where each lane knows its rows and columns.
// Rows past the end of the sequence repeat the last one and are dropped. Any N, P, groups, T.
#include "mamba2_matrix_output.h"
layout(set = 0, binding = MAMBA2_MATRIX_OUTPUT_Y) restrict writeonly buffer y_block { stored y[]; };
layout(set = 0, binding = MAMBA2_MATRIX_OUTPUT_Y) restrict writeonly buffer y4_block { stored4 y4[]; };
layout(set = 0, binding = MAMBA2_CHUNK_XBC) readonly buffer xBC_block { float xBC[]; };
layout(set = 0, binding = MAMBA2_CHUNK_XBC) readonly buffer xBC4_block { vec4 xBC4[]; };
layout(set = 0, binding = MAMBA2_CHUNK_STATES) restrict readonly buffer states_block { uvec4 states[]; };
layout(set = 0, binding = MAMBA2_CHUNK_DT) restrict readonly buffer dt_block { float dt[]; };
layout(set = 0, binding = MAMBA2_CHUNK_G) restrict readonly buffer g_block { float g[]; };
layout(set = 0, binding = MAMBA2_MATRIX_OUTPUT_D) restrict readonly buffer D_block { float D[]; };
layout(set = 0, binding = MAMBA2_CHUNK_SEQUENCES) restrict readonly buffer sequences_block {
  sequence sequences[];
};
#include "mamba2_matrix.glsl"

const uint TILES_N = NP / TILE_K, TILES_C = C / TILE_N, TILES_P = PP / TILE_N, STEPS_C = C / TILE_K;
const uint KEYS_EACH = (C * N8 + LANES - 1) / LANES, X_EACH = (C * P8 + LANES - 1) / LANES;
const uint S_EACH = (NP * P8 + LANES - 1) / LANES;
const uint STAGED = C * N_PITCH > NP * P_PITCH ? C * N_PITCH : NP * P_PITCH;
const uint WIDEST = C > TILE_N ? C : TILE_N;
const uint OWN_PITCH = WIDEST / 4 + 1, OWN = TILE_M * OWN_PITCH;
const uint SHARERS = SUBGROUP / TILE_M; // lanes that share a row of M
const uint PART = C / SHARERS / 4;      // vec4 of that row in each lane; even
const uint GIVEN = TILES_P < WIDEST / TILE_N ? TILES_P : WIDEST / TILE_N; // tiles of y that fit there
const uint GIVEN4 = GIVEN * TILE_N / 4;
shared uvec4 staged[STAGED];            // C, then B, then each head's S
shared uvec4 values[C * P_PITCH];       // x
shared uvec4 own[SUBGROUPS * OWN];      // a part per subgroup: C B^T in f32, then M, then y
shared vec4 factors[C / 4];             // factors of the rows of C S

// Stages N columns of every token, from column `from` on.
void stage_keys(const part w, uint from) {
  [[unroll]] for (uint n = 0; n < KEYS_EACH; n++) {
    uint i = n * LANES + gl_LocalInvocationIndex;
    uvec4 x = half8(load8(w, i, N8, from, N));
    if (C * N8 % LANES == 0 || i < C * N8) staged[i / N8 * N_PITCH + i % N8] = x;
  }
}

// Stages the head's S before the chunk, and its x.
void stage_head(const part w, uint h) {
  uvec4 S[S_EACH], x[X_EACH];
  [[unroll]] for (uint n = 0; n < S_EACH; n++)
    S[n] = states[record_of(w, h) + min(n * LANES + gl_LocalInvocationIndex, NP * P8 - 1)];
  [[unroll]] for (uint n = 0; n < X_EACH; n++)
    x[n] = half8(load8(w, n * LANES + gl_LocalInvocationIndex, P8, (w.head0 + h) * P, P));
  barrier(); // the previous head's data has been read
  [[unroll]] for (uint n = 0; n < S_EACH; n++) {
    uint i = n * LANES + gl_LocalInvocationIndex;
    if (NP * P8 % LANES == 0 || i < NP * P8) staged[i / P8 * P_PITCH + i % P8] = S[n];
  }
  [[unroll]] for (uint n = 0; n < X_EACH; n++) {
    uint i = n * LANES + gl_LocalInvocationIndex;
    if (C * P8 % LANES == 0 || i < C * P8) values[i / P8 * P_PITCH + i % P8] = x[n];
  }
}

// Stores four elements of row t of the chunk's y, from column p of the head on.
void give(const part w, uint h, uint t, uint p, float skip, vec4 sums) {
  const uint head = w.head0 + h, to = (w.row + t) * args.y_stride + head * P + p;
  uvec4 both = values[t * P_PITCH + p / 8];
  uvec2 x = p % 8 == 0 ? both.xy : both.zw;
  vec4 skips = vec4(skip);
  if (args.D_per_element != 0)
    [[unroll]] for (uint k = 0; k < 4; k++) skips[k] = D[head * P + min(p + k, P - 1)];
  sums += skips * vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y));
  if (FOURS != 0) {
    if (p < P) y4[to / 4] = STORED4(sums);
  } else {
    [[unroll]] for (uint k = 0; k < 4; k++)
      if (p + k < P) y[to + k] = STORED(sums[k]);
  }
}

void main() {
  part w;
  if (!part_of(w)) return;
  const uint lane = gl_SubgroupInvocationID, mine = gl_SubgroupID * OWN, row0 = gl_SubgroupID * TILE_M;
  const uint B_at = args.heads * P + w.group * N;
  stage_keys(w, B_at + args.groups * N);
  make_gates(w);
  LEFT c[TILES_N];
  [[unroll]] for (uint k = 0; k < TILES_N; k++)
    coopMatLoad(c[k], staged, row0 * N_PITCH + k * TILE_K / 8, N_PITCH, ROWS);
  barrier();
  stage_keys(w, B_at);
  barrier();
  SUM products[TILES_C];
  [[unroll]] for (uint j = 0; j < TILES_C; j++) {
    products[j] = SUM(0.0);
    [[unroll]] for (uint k = 0; k < TILES_N; k++) {
      RIGHT b;
      coopMatLoad(b, staged, j * TILE_N * N_PITCH + k * TILE_K / 8, N_PITCH, COLS);
      products[j] = coopMatMulAdd(c[k], b, products[j]);
    }
  }

  const uint row = lane / SHARERS, part0 = lane % SHARERS * PART, i = row0 + row;
  for (uint h = 0; h < w.heads; h++) {
    stage_head(w, h);
    const float scale = uintBitsToFloat(states[record_of(w, h) + RECORD - 1].w);
    const float skip = D[args.D_per_element != 0 ? 0 : w.head0 + h];
    [[unroll]] for (uint j = 0; j < TILES_C; j++)
      coopMatStore(products[j], own, mine + j * TILE_N / 4, OWN_PITCH, ROWS);
    subgroup_barrier();
    vec4 m[PART];
    [[unroll]] for (uint n = 0; n < PART; n++) m[n] = uintBitsToFloat(own[mine + row * OWN_PITCH + part0 + n]);
    const float reach = exp(G[h * C + i].x + G[h * C + i].y) * scale;
    vec4 top = vec4(max(reach, 1e-30));
    [[unroll]] for (uint n = 0; n < PART; n++) {
      [[unroll]] for (uint k = 0; k < 4; k++) {
        uint j = (part0 + n) * 4 + k;
        m[n][k] = j <= i ? m[n][k] * decay_between(h, i, j) * sizes[h * C / 4 + part0 + n][k] : 0.0;
      }
      top = max(top, abs(m[n]));
    }
    const float largest = subgroupMax(max(max(top.x, top.y), max(top.z, top.w))), shrink = 1.0 / largest;
    subgroup_barrier();
    [[unroll]] for (uint n = 0; n < PART / 2; n++)
      own[mine + row * OWN_PITCH + part0 / 2 + n] = half8(eight(shrink * m[2 * n], shrink * m[2 * n + 1]));
    if (part0 == 0) factors[i / 4][i % 4] = shrink * reach;
    barrier();

    SUM sums[TILES_P], factor;
    [[unroll]] for (uint j = 0; j < TILES_P; j++) sums[j] = SUM(0.0);
    [[unroll]] for (uint k = 0; k < TILES_N; k++)
      [[unroll]] for (uint j = 0; j < TILES_P; j++) {
        RIGHT S;
        coopMatLoad(S, staged, k * TILE_K * P_PITCH + j * TILE_N / 8, P_PITCH, ROWS);
        sums[j] = coopMatMulAdd(c[k], S, sums[j]);
      }
    coopMatLoad(factor, factors, row0 / 4, 0, COLS); // a load with stride 0 copies one column to all columns
    [[unroll]] for (uint j = 0; j < TILES_P; j++) sums[j] = factor * sums[j];
    [[unroll]] for (uint k = 0; k < STEPS_C; k++) {
      LEFT p;
      coopMatLoad(p, own, mine + k * TILE_K / 8, OWN_PITCH, ROWS);
      [[unroll]] for (uint j = 0; j < TILES_P; j++) {
        RIGHT v;
        coopMatLoad(v, values, k * TILE_K * P_PITCH + j * TILE_N / 8, P_PITCH, ROWS);
        sums[j] = coopMatMulAdd(p, v, sums[j]);
      }
    }
    // Stores y, as many tiles at a time as fit in the subgroup's part of shared memory.
    [[unroll]] for (uint j0 = 0; j0 < TILES_P; j0 += GIVEN) {
      subgroup_barrier();
      [[unroll]] for (uint j = 0; j < GIVEN; j++)
        if (j0 + j < TILES_P) coopMatStore(sums[j0 + j], own, mine + j * TILE_N / 4, OWN_PITCH, ROWS);
      subgroup_barrier();
      [[unroll]] for (uint n = 0; n < TILE_M * GIVEN4 / SUBGROUP; n++) {
        uint e = n * SUBGROUP + lane, r = e / GIVEN4, p = j0 * TILE_N + e % GIVEN4 * 4;
        if (row0 + r < w.count && p < PP)
          give(w, h, row0 + r, p, skip, largest * uintBitsToFloat(own[mine + r * OWN_PITCH + e % GIVEN4]));
      }
    }
  }
}
