#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#ifdef CONVERSIONS
#extension GL_NV_cooperative_matrix2 : require
#endif
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
// The delta rule again, as far as its backward pass needs it: the state before each block, and V', which replaces V:
//   V' = Tm (V - e^G * (K S))        S <- e^Gn S + (e^(Gn - G) * K)^T V'
// Workgroups (ceil(DV / (SUBGROUPS WIDTH)), Hv, B).
#include "rule_matrix.h"
const uint KEY_SETS = 1; // K
#include "rule_matrix_scan.glsl"
layout(set = 0, binding = RULE_MATRIX_STATES_BEFORE) restrict readonly buffer before_block { float before[]; };
LOAD_TILE(load_tile, before)

void main() {
  begin();
  if (seq.T == 0) return;
  SUM S[TILES_K][TILES];
  const uint at = seq.slot * args.state_stride + head * args.Dk * args.Dv;
  [[unroll]] for (uint x = 0; x < TILES_K; x++)
    [[unroll]] for (uint r = 0; r < TILES; r++) load_tile(S[x][r], at, x, r, args.has_before != 0, 1.0);
  fetch(0, values_at);
  // A nest of loops: a condition around the state would make NVIDIA's compiler keep it in local memory.
  for (uint chunk = 0; chunk < chunks;) {
    keep_state(S, (start + chunk * C) / BLOCK, 0);
    for (uint last = chunk + BLOCK / C; chunk < last; chunk++) {
      const uint turn = chunk & 1;
      put(turn);
      put_own();
      barrier();
      if (chunk + 1 < chunks) fetch(chunk + 1, values_at);
      copy_state(S);
      SUM U[TILES_C][TILES];
      times_keys(S, turn, U);
      [[unroll]] for (uint j = 0; j < TILES_C; j++) {
        const SUM f = fade(turn, 0, j);
        [[unroll]] for (uint r = 0; r < TILES; r++) {
          SUM16 v;
          coopMatLoad(v, own, INPUTS + mine * OWN + j * TILE * W_PITCH + r * T8, W_PITCH, BY_COLUMNS);
          U[j][r] = SUM(v) - f * U[j][r];
        }
      }
      LEFT u[TILES_C][TILES];
      operands(U, u);
      [[unroll]] for (uint i = 0; i < TILES_C; i++) {
        [[unroll]] for (uint r = 0; r < TILES; r++) U[i][r] = SUM(0.0);
        [[unroll]] for (uint j = 0; j <= i; j++) {
          RIGHT t;
          coopMatLoad(t, factors, turn * FACTORS + j * TILE * C_PITCH + i * T8, C_PITCH, BY_ROWS);
          [[unroll]] for (uint r = 0; r < TILES; r++) U[i][r] = coopMatMulAdd(u[j][r], t, U[i][r]);
        }
      }
      [[unroll]] for (uint j = 0; j < TILES_C; j++)
        [[unroll]] for (uint r = 0; r < TILES; r++)
          coopMatStore(SUM16(U[j][r]), own, INPUTS + mine * OWN + j * TILE * W_PITCH + r * T8, W_PITCH, BY_COLUMNS);
      const float kept = fades[turn * FADES + C / 4 - 1].w;
      [[unroll]] for (uint j = 0; j < TILES_C; j++) {
        const SUM f = fade(turn, 1, j);
        [[unroll]] for (uint r = 0; r < TILES; r++) U[j][r] = f * U[j][r];
      }
      operands(U, u);
      [[unroll]] for (uint x = 0; x < TILES_K; x++) {
        [[unroll]] for (uint r = 0; r < TILES; r++) S[x][r] = kept * S[x][r];
        [[unroll]] for (uint j = 0; j < TILES_C; j++) {
          RIGHT k;
          coopMatLoad(k, keys, turn * KEYS + j * TILE * K_PITCH + x * T8, K_PITCH, BY_ROWS);
          [[unroll]] for (uint r = 0; r < TILES; r++) S[x][r] = coopMatMulAdd(u[j][r], k, S[x][r]);
        }
      }
      write_own(chunk, values_at);
    }
  }
}
