#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
// delta_matrix_scan.comp for devices whose coopmat accumulators cannot become operands. Nothing is transposed. S, U and
// V' become right operands through shared memory, with an f16 copy in the subgroup's own columns.
//   U  = V - e^G * (K S)                         V' = Tm U
//   O  = scale e^G * (Q S) + P V'                S <- e^Gn S + (e^(Gn - G) * K)^T V'
// Workgroups and tensors are those of delta_matrix_scan.comp.
#define FADES_OUT
#define VALUES_TWICE
#include "delta_matrix_stage.glsl"
shared uvec4 copy[DK * V_PITCH]; // S; f16

// Loads tile (dk x, columns r) of S; `at` is the subgroup's first column in row 0 of the head's state.
void load_tile(out SUM S, uint at, uint x, uint r) {
  coopMatLoad(S, state, at + x * TILE_M * args.Dv + r * TILE_N, args.Dv, ROWS);
}

void store_tile(SUM S, uint at, uint x, uint r, const bool identity) {
  if (MODE == DELTA_MATRIX_SEGMENTS) {
    uint c = column0 + r * TILE_N, to = 2 * (map_at + DK * DVP) + c / 16 * 16 * DK + x * TILE_M * 16 + c % 16;
    if (!identity) {
      coopMatStore(S, maps, (map_at + x * TILE_M * DVP + c) / 4, DVP / 4, ROWS);
    } else if (c < DK) {
      SUM16 high = SUM16(S);
      coopMatStore(high, maps16, to / 8, 2, ROWS);
      coopMatStore(SUM16(S - SUM(high)), maps16, (to + DK * DK) / 8, 2, ROWS);
    }
    return;
  }
  coopMatStore(S, state, at + x * TILE_M * args.Dv + r * TILE_N, args.Dv, ROWS);
}

// The same for a tile that is partly outside the state.
void load_corner(out SUM S, uint at, uint x, uint r) {
  const uint own = computer * TILE_M * TILE_N;
  [[unroll]] for (uint n = 0; n < TILE_M * TILE_N / SUBGROUP; n++) {
    const uint i = n * SUBGROUP + lane, d = x * TILE_M + i / TILE_N, c = r * TILE_N + i % TILE_N;
    const float s = state[at - column0 + min(d, args.Dk - 1) * args.Dv + min(column0 + c, args.Dv - 1)];
    corner[own + i] = d < args.Dk && column0 + c < args.Dv ? s : 0.0;
  }
  subgroup_barrier();
  coopMatLoad(S, corner, own, TILE_N, ROWS);
  subgroup_barrier();
}

void store_corner(SUM S, uint at, uint x, uint r) {
  const uint own = computer * TILE_M * TILE_N;
  coopMatStore(S, corner, own, TILE_N, ROWS);
  subgroup_barrier();
  [[unroll]] for (uint n = 0; n < TILE_M * TILE_N / SUBGROUP; n++) {
    const uint i = n * SUBGROUP + lane, d = x * TILE_M + i / TILE_N, c = r * TILE_N + i % TILE_N;
    if (d < args.Dk && column0 + c < args.Dv) state[at + d * args.Dv + c] = corner[own + i];
  }
  subgroup_barrier();
}

const uint TILES_S = DK / TILE_M, TILES_K = DK / TILE_K;             // tiles along the rows of S: sum, operand
const uint TILES_R = C / TILE_M, TILES_Q = QUERIES / TILE_M;         // tiles along the rows of R and O
const uint TILES_U = C / TILE_K;                                     // tiles along the rows of R and V' as operands
const uint WHOLE_S = WHOLE_ROWS / TILE_M; // tiles of TILES_S that lie inside the state; maps have no others
const uint STORED_S = MODE == DELTA_MATRIX_SEGMENTS ? TILES_S : WHOLE_S;
#define COPY_AT(row, r) ((row) * V_PITCH + computer * W8 + (r) * TILE_N / 8)
// Whether tile (i, j) of Tm, or of P, has elements that are not zero.
#define BELOW(i, j) (R > 1 || (j) * TILE_K < ((i) + 1) * TILE_M)
#define SEEN(i, j) (R > 1 || (j) * TILE_K < ((i) + 1) * TILE_M * N)

void walk(uint record, const bool identity) {
  const uint step = args.Hv * RECORD;
  uint state_at = seq.slot * args.state_stride + head * args.Dk * args.Dv + column0;
  SUM S[TILES_S][TILES];
  if (identity) {
    const SUM unit = unit_tile();
    [[unroll]] for (uint x = 0; x < TILES_S; x++)
      [[unroll]] for (uint r = 0; r < TILES; r++)
        S[x][r] = (x * TILE_M == column0 + r * TILE_N ? 1.0 : 0.0) * unit;
  } else if (MODE == DELTA_MATRIX_WHOLE || first) {
    [[unroll]] for (uint x = 0; x < WHOLE_S; x++)
      [[unroll]] for (uint r = 0; r < TILES; r++) load_tile(S[x][r], state_at, x, r);
    if (WHOLE_S < TILES_S)
      [[unroll]] for (uint x = WHOLE_S; x < TILES_S; x++)
        [[unroll]] for (uint r = 0; r < TILES; r++) load_corner(S[x][r], state_at, x, r);
  } else {
    [[unroll]] for (uint x = 0; x < TILES_S; x++)
      [[unroll]] for (uint r = 0; r < TILES; r++) S[x][r] = SUM(0.0);
  }
  [[unroll]] for (uint x = 0; x < TILES_S; x++)
    [[unroll]] for (uint r = 0; r < TILES; r++)
      coopMatStore(SUM16(S[x][r]), copy, COPY_AT(x * TILE_M, r), V_PITCH, ROWS);
  fetch_keys(0, 0);
  if (!identity) fetch_values(0, 0);
  fetch_record(0, record);
  for (uint t0 = 0; t0 < seq.T; t0 += TOKENS, record += step) {
    put_keys(0, 0, t0);
    put_record(0, 0);
    if (!identity) put_values(0, t0);
    barrier();
    if (t0 + TOKENS < seq.T) {
      fetch_keys(0, t0 + TOKENS);
      fetch_record(0, record + step);
      if (!identity) fetch_values(0, t0 + TOKENS);
    }
    SUM U[TILES_R][TILES], O[TILES_Q][TILES];
    [[unroll]] for (uint r = 0; r < TILES; r++) {
      [[unroll]] for (uint i = 0; i < TILES_R; i++) U[i][r] = SUM(0.0);
      [[unroll]] for (uint i = 0; i < TILES_Q; i++) O[i][r] = SUM(0.0);
    }
    // K S and Q S
    [[unroll]] for (uint x = 0; x < TILES_K; x++) {
      RIGHT s[TILES];
      [[unroll]] for (uint r = 0; r < TILES; r++) coopMatLoad(s[r], copy, COPY_AT(x * TILE_K, r), V_PITCH, ROWS);
      [[unroll]] for (uint i = 0; i < TILES_R; i++)
        if (HOLDS(i * TILE_M, TILE_M, x * TILE_K, TILE_K)) {
          LEFT k;
          coopMatLoad(k, keys, KEY_ROW(i * TILE_M) * K_PITCH + x * TILE_K / 8, K_PITCH, ROWS);
          [[unroll]] for (uint r = 0; r < TILES; r++) U[i][r] = coopMatMulAdd(k, s[r], U[i][r]);
        }
      [[unroll]] for (uint i = 0; i < TILES_Q; i++) {
        LEFT q;
        coopMatLoad(q, keys, (KEY_ROWS + i * TILE_M) * K_PITCH + x * TILE_K / 8, K_PITCH, ROWS);
        [[unroll]] for (uint r = 0; r < TILES; r++) O[i][r] = coopMatMulAdd(q, s[r], O[i][r]);
      }
    }
    // U replaces V, or with blocks K S is stored before it. A load with stride 0 copies one column to all columns. Each
    // lane stores only elements that it has just loaded.
    [[unroll]] for (uint i = 0; i < TILES_R; i++) {
      SUM fade;
      if (R == 1) coopMatLoad(fade, fades, i * TILE_M / 4, 0, COLS);
      [[unroll]] for (uint r = 0; r < TILES; r++) {
        if (R > 1) {
          coopMatStore(SUM16(U[i][r]), values, COPY_AT(i * TILE_M, r), V_PITCH, ROWS);
        } else if (identity) {
          coopMatStore(SUM16(-fade * U[i][r]), values, COPY_AT(i * TILE_M, r), V_PITCH, ROWS);
        } else {
          SUM16 v;
          coopMatLoad(v, values, COPY_AT(i * TILE_M, r), V_PITCH, ROWS);
          coopMatStore(SUM16(SUM(v) - fade * U[i][r]), values, COPY_AT(i * TILE_M, r), V_PITCH, ROWS);
        }
        U[i][r] = SUM(0.0);
      }
    }
    subgroup_barrier();
    RIGHT u[TILES_U][TILES];
    [[unroll]] for (uint j = 0; j < TILES_U; j++)
      [[unroll]] for (uint r = 0; r < TILES; r++) coopMatLoad(u[j][r], values, COPY_AT(j * TILE_K, r), V_PITCH, ROWS);
    [[unroll]] for (uint i = 0; i < TILES_R; i++)
      [[unroll]] for (uint j = 0; j < TILES_U; j++)
        if (BELOW(i, j)) {
          LEFT t;
          coopMatLoad(t, factors, j * TILE_K * C_PITCH + i * TILE_M / 8, C_PITCH, COLS);
          [[unroll]] for (uint r = 0; r < TILES; r++) U[i][r] = coopMatMulAdd(t, u[j][r], U[i][r]);
        }
    [[unroll]] for (uint j = 0; R > 1 && !identity && j < QUERIES / TILE_K; j++)
      [[unroll]] for (uint r = 0; r < TILES; r++) {
        RIGHT v;
        coopMatLoad(v, values, COPY_AT(UNKNOWNS + j * TILE_K, r), V_PITCH, ROWS);
        [[unroll]] for (uint i = 0; i < TILES_R; i++) {
          LEFT t;
          coopMatLoad(t, factors, (C + j * TILE_K) * C_PITCH + i * TILE_M / 8, C_PITCH, COLS);
          U[i][r] = coopMatMulAdd(t, v, U[i][r]);
        }
      }
    subgroup_barrier();
    [[unroll]] for (uint i = 0; i < TILES_R; i++)
      [[unroll]] for (uint r = 0; r < TILES; r++)
        coopMatStore(SUM16(U[i][r]), values, COPY_AT(i * TILE_M, r), V_PITCH, ROWS);
    [[unroll]] for (uint i = 0; i < TILES_Q; i++) {
      SUM fade;
      coopMatLoad(fade, fades, (2 * C + i * TILE_M) / 4, 0, COLS);
      [[unroll]] for (uint r = 0; r < TILES; r++) O[i][r] = fade * O[i][r];
    }
    subgroup_barrier();
    // O and S from V'
    [[unroll]] for (uint j = 0; j < TILES_U; j++)
      [[unroll]] for (uint r = 0; r < TILES; r++) coopMatLoad(u[j][r], values, COPY_AT(j * TILE_K, r), V_PITCH, ROWS);
    [[unroll]] for (uint i = 0; i < TILES_Q; i++)
      [[unroll]] for (uint j = 0; j < TILES_U; j++)
        if (SEEN(i, j)) {
          LEFT p;
          coopMatLoad(p, factors, (FACTOR_ROWS + i * TILE_M) * C_PITCH + j * TILE_K / 8, C_PITCH, ROWS);
          [[unroll]] for (uint r = 0; r < TILES; r++) O[i][r] = coopMatMulAdd(p, u[j][r], O[i][r]);
        }
    [[unroll]] for (uint j = 0; j < TILES_U; j++) {
      RIGHT fade;
      coopMatLoad(fade, fades_out, j * TILE_K, 0, COLS);
      [[unroll]] for (uint r = 0; r < TILES; r++) u[j][r] = fade * u[j][r];
    }
    subgroup_barrier();
    [[unroll]] for (uint i = 0; i < TILES_Q; i++)
      [[unroll]] for (uint r = 0; r < TILES; r++)
        coopMatStore(SUM16(O[i][r]), values, COPY_AT(UNKNOWNS + i * TILE_M, r), V_PITCH, ROWS);
    const float kept = fades[C / 4 - 1].w;
    [[unroll]] for (uint x = 0; x < TILES_S; x++) {
      [[unroll]] for (uint r = 0; r < TILES; r++) S[x][r] = kept * S[x][r];
      [[unroll]] for (uint j = 0; j < TILES_U; j++)
        if (HOLDS(j * TILE_K, TILE_K, x * TILE_M, TILE_M)) {
          LEFT k;
          coopMatLoad(k, keys, KEY_ROW(j * TILE_K) * K_PITCH + x * TILE_M / 8, K_PITCH, COLS);
          [[unroll]] for (uint r = 0; r < TILES; r++) S[x][r] = coopMatMulAdd(k, u[j][r], S[x][r]);
        }
      [[unroll]] for (uint r = 0; r < TILES; r++)
        coopMatStore(SUM16(S[x][r]), copy, COPY_AT(x * TILE_M, r), V_PITCH, ROWS);
    }
    subgroup_barrier();
    store_outputs(t0, identity);
    barrier();
  }
  [[unroll]] for (uint x = 0; x < STORED_S; x++)
    [[unroll]] for (uint r = 0; r < TILES; r++) store_tile(S[x][r], state_at, x, r, identity);
  if (STORED_S < TILES_S)
    [[unroll]] for (uint x = STORED_S; x < TILES_S; x++)
      [[unroll]] for (uint r = 0; r < TILES; r++) store_corner(S[x][r], state_at, x, r);
}

void main() {
  bool identity;
  const uint record = begin(identity);
  if (seq.T == 0) return;
  if (identity)
    walk(record, true);
  else
    walk(record, false);
}
