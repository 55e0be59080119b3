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
#extension GL_KHR_shader_subgroup_arithmetic : require
// The part of the delta rule's backward pass that goes from the last chunk to the first, with dS the gradient of the
// state after the chunk:
//   Z = Tm^T (P^T dO + e^(Gn - G) * (K dS))        dS <- e^Gn dS + (scale e^G * Q)^T dO - (e^G * K)^T Z
// It keeps Z and the dS after each block. Workgroups (ceil(DV / (SUBGROUPS WIDTH)), Hv, B).
#include "rule_matrix.h"
const uint KEY_SETS = 2; // K, Q
#include "rule_matrix_scan.glsl"
layout(set = 0, binding = RULE_MATRIX_REVERSE_GATES) restrict readonly buffer gates_block { float gates[]; };
layout(set = 0, binding = RULE_MATRIX_REVERSE_DSTATE) restrict buffer dstate_block { float dstate[]; };
LOAD_TILE(load_tile, dstate)

void store_tile(SUM S, uint at, uint x, uint r, float by) {
  const uint from = mine * TILE * TILE;
  subgroup_barrier();
  coopMatStore(S, corner, from, TILE, BY_COLUMNS);
  subgroup_barrier();
  [[unroll]] for (uint n = 0; n < TILE * TILE / SUBGROUP; n++) {
    const uint i = n * SUBGROUP + lane, d = x * TILE + i / TILE, c = column0 + r * TILE + i % TILE;
    if (inside && d < args.Dk && c < args.Dv) dstate[at + d * args.Dv + c] = by * corner[from + i];
  }
}

float exponent_of(uint block) { return gates[args.scales_at + block * args.Hv + head]; }

void main() {
  begin();
  if (seq.T == 0) return;
  const uint first = start / BLOCK, blocks = chunks / (BLOCK / C);
  float least = 126.0;
  for (uint b = lane; b < blocks; b += SUBGROUP) least = min(least, exponent_of(first + b));
  least = subgroupMin(least);
  SUM S[TILES_K][TILES];
  const uint at = seq.slot * args.state_stride + head * args.Dk * args.Dv;
  [[unroll]] for (uint x = 0; x < TILES_K; x++)
    [[unroll]] for (uint r = 0; r < TILES; r++) load_tile(S[x][r], at, x, r, true, ldexp(1.0, int(least)));
  fetch(chunks - 1, do_at);
  // A nest of loops: a condition around the state would make NVIDIA's compiler keep it in local memory.
  for (uint done = 0; done < chunks;) {
    const uint block = first + (chunks - 1 - done) / (BLOCK / C);
    // From the block's factor of dO to the sequence's.
    const float factor = ldexp(1.0, int(max(least - exponent_of(block), -126.0)));
    keep_state(S, block, 1);
    for (uint last = done + BLOCK / C; done < last; done++) {
      const uint turn = done & 1, chunk = chunks - 1 - done;
      put(turn);
      put_own();
      barrier();
      if (chunk > 0) fetch(chunk - 1, do_at);
      copy_state(S);
      SUM U[TILES_C][TILES], O[TILES_C][TILES];
      LEFT d[TILES_C][TILES], u[TILES_C][TILES];
      [[unroll]] for (uint j = 0; j < TILES_C; j++) {
        const SUM f = fade(turn, 2, j);
        [[unroll]] for (uint r = 0; r < TILES; r++) {
          const uint from = INPUTS + mine * OWN + j * TILE * W_PITCH + r * T8;
          SUM16 o;
          coopMatLoad(d[j][r], own, from, W_PITCH, BY_COLUMNS);
          coopMatLoad(o, own, from, W_PITCH, BY_COLUMNS);
          O[j][r] = factor * (f * SUM(o));
        }
      }
      times_keys(S, turn, U);
      [[unroll]] for (uint j = 0; j < TILES_C; j++) {
        SUM p[TILES];
        [[unroll]] for (uint r = 0; r < TILES; r++) p[r] = SUM(0.0);
        [[unroll]] for (uint i = j; i < TILES_C; i++) {
          RIGHT x;
          coopMatLoad(x, factors, turn * FACTORS + (C + i * TILE) * C_PITCH + j * T8, C_PITCH, BY_ROWS);
          [[unroll]] for (uint r = 0; r < TILES; r++) p[r] = coopMatMulAdd(d[i][r], x, p[r]);
        }
        const SUM f = fade(turn, 1, j);
        [[unroll]] for (uint r = 0; r < TILES; r++) U[j][r] = factor * p[r] + f * U[j][r];
      }
      operands(U, u);
      [[unroll]] for (uint i = 0; i < TILES_C; i++) {
        [[unroll]] for (uint r = 0; r < TILES; r++) U[i][r] = SUM(0.0);
        [[unroll]] for (uint j = i; j < TILES_C; j++) {
          RIGHT t;
          coopMatLoad(t, factors, turn * FACTORS + i * TILE * C_PITCH + j * T8, C_PITCH, BY_COLUMNS);
          [[unroll]] for (uint r = 0; r < TILES; r++) U[i][r] = coopMatMulAdd(u[j][r], t, U[i][r]);
        }
      }
      subgroup_barrier(); // dO has been read
      [[unroll]] for (uint j = 0; j < TILES_C; j++)
        [[unroll]] for (uint r = 0; r < TILES; r++)
          coopMatStore(SUM16(U[j][r]), own, INPUTS + mine * OWN + j * TILE * W_PITCH + r * T8, W_PITCH, BY_COLUMNS);
      [[unroll]] for (uint j = 0; j < TILES_C; j++) {
        const SUM f = fade(turn, 0, j);
        [[unroll]] for (uint r = 0; r < TILES; r++) U[j][r] = -(f * U[j][r]);
      }
      operands(O, d);
      operands(U, u);
      const float kept = fades[turn * FADES + C / 4 - 1].w;
      [[unroll]] for (uint x = 0; x < TILES_K; x++) {
        [[unroll]] for (uint r = 0; r < TILES; r++) S[x][r] = kept * S[x][r];
        [[unroll]] for (uint j = 0; j < TILES_C; j++) {
          RIGHT k, q;
          coopMatLoad(k, keys, turn * KEYS + j * TILE * K_PITCH + x * T8, K_PITCH, BY_ROWS);
          coopMatLoad(q, keys, turn * KEYS + (C + j * TILE) * K_PITCH + x * T8, K_PITCH, BY_ROWS);
          [[unroll]] for (uint r = 0; r < TILES; r++)
            S[x][r] = coopMatMulAdd(d[j][r], q, coopMatMulAdd(u[j][r], k, S[x][r]));
        }
      }
      write_own(chunk, z_at);
    }
  }
  [[unroll]] for (uint x = 0; x < TILES_K; x++)
    [[unroll]] for (uint r = 0; r < TILES; r++) store_tile(S[x][r], at, x, r, ldexp(1.0, -int(least)));
}
