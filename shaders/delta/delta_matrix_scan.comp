#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_NV_cooperative_matrix2 : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
// The sequential part of the chunkwise delta rule, on cooperative matrices (coopmat) whose accumulators can become
// operands: chunks in order, with S (Dk, columns) in f32 accumulators.
//   U  = V - e^G * (K S)                         V' = Tm U
//   O  = scale e^G * (Q S) + P V'                S <- e^Gn S + (e^(Gn - G) * K)^T V'
// Tm, P and the fades come from delta_matrix_prepare (delta_matrix.h). Head-in-Head has R blocks of keys and of S:
//   Y_b = K_b S_b, V' = W^T (Y; V), and the rest per block (hh_matrix_prepare, hh_matrix.h).
// Everything that a subgroup owns is transposed, S^T (columns, Dk) and U^T, V'^T, O^T (columns, C). So S, U and V' are
// always the left operand, which an accumulator becomes within its registers, and only K, Q, Tm and P, which all
// subgroups share, are read from shared memory. With AHEAD, O is (C, columns): S and V' are transposed in registers and
// become right operands, and O's tokens are stored in whole words.
// qkv (T, (1 + N) H Dk + N Hv Dv), state (slots, Hv, Dk, Dv), o (T, Hv Dv). Workgroups (ceil(Dv / COLUMNS), Hv, B *
// segments): COLUMNS value columns of one head of one segment; with segments, ceil(DK / COLUMNS) more, whose columns
// are M's. A subgroup owns WIDTH of them for all rows. Any Dk, Dv, T.
#include "delta_matrix_stage.glsl"

// Loads tile (dk x, columns r) of S^T; `at` is the subgroup's first column in row 0 of the head's state.
void load_tile(out SUM S, uint at, uint x, uint r) {
  coopMatLoad(S, state, at + x * TILE_N * args.Dv + r * TILE_M, args.Dv, COLS);
}

void store_tile(SUM S, uint at, uint x, uint r, const bool identity) {
  if (MODE == DELTA_MATRIX_SEGMENTS) {
    uint c = column0 + r * TILE_M, to = 2 * (map_at + DK * DVP) + c / 16 * 16 * DK + x * TILE_N * 16 + c % 16;
    if (!identity) {
      coopMatStore(S, maps, (map_at + x * TILE_N * DVP + c) / 4, DVP / 4, COLS);
    } else if (c < DK) {
      SUM16 high = SUM16(S);
      coopMatStore(high, maps16, to / 8, 2, COLS);
      coopMatStore(SUM16(S - SUM(high)), maps16, (to + DK * DK) / 8, 2, COLS);
    }
    return;
  }
  coopMatStore(S, state, at + x * TILE_N * args.Dv + r * TILE_M, args.Dv, COLS);
}

// The same for a tile that is partly outside the state; outside elements are loaded from a valid address. If loads had
// conditions, or S in walk() had conditions other than constants, NVIDIA's compiler would keep S in local memory.
void load_corner(out SUM S, uint at, uint x, uint r) {
  const uint own = computer * TILE_M * TILE_N;
  [[unroll]] for (uint n = 0; n < TILE_M * TILE_N / SUBGROUP; n++) {
    const uint i = n * SUBGROUP + lane, d = x * TILE_N + i / TILE_M, c = r * TILE_M + i % TILE_M;
    const float s = state[at - column0 + min(d, args.Dk - 1) * args.Dv + min(column0 + c, args.Dv - 1)];
    corner[own + i] = d < args.Dk && column0 + c < args.Dv ? s : 0.0;
  }
  subgroup_barrier();
  coopMatLoad(S, corner, own, TILE_M, COLS);
  subgroup_barrier();
}

void store_corner(SUM S, uint at, uint x, uint r) {
  const uint own = computer * TILE_M * TILE_N;
  coopMatStore(S, corner, own, TILE_M, COLS);
  subgroup_barrier();
  [[unroll]] for (uint n = 0; n < TILE_M * TILE_N / SUBGROUP; n++) {
    const uint i = n * SUBGROUP + lane, d = x * TILE_N + i / TILE_M, c = r * TILE_M + i % TILE_M;
    if (d < args.Dk && column0 + c < args.Dv) state[at + d * args.Dv + c] = corner[own + i];
  }
  subgroup_barrier();
}

const uint TILES_K = DK / TILE_K, TILES_C = C / TILE_N, TILES_Q = QUERIES / TILE_N;
const uint WHOLE_K = WHOLE_ROWS / TILE_K; // tiles of TILES_K that lie inside the state; maps have no others
const uint STORED_K = MODE == DELTA_MATRIX_SEGMENTS ? TILES_K : WHOLE_K;
// Whether P's tile of queries i and steps j has elements that are not zero.
#define SEEN(i, j) (R > 1 || (j) * TILE_K < ((i) + 1) * TILE_N * N)
const bool TURNED = AHEAD > 0; // O is not transposed

// Stages the fetched chunk after the one at t0 in the other half of the memory, and fetches the chunk AHEAD chunks
// after it. At the end it repeats the last chunk: a branch would make the compiler copy it to other registers, which
// waits for the loads.
void stage_next(uint t0, uint record, uint last, const uint turn) {
  const uint set = (turn ^ 1) & (SETS - 1);
  put_keys(set, turn ^ 1, t0 + TOKENS);
  put_record(set, turn ^ 1);
  fetch_keys(set, t0 + (1 + AHEAD) * TOKENS);
  fetch_record(set, min(record + (1 + AHEAD) * args.Hv * RECORD, last));
}

// identity: a compile-time constant, since its code differs in every chunk. turn: the half of the memory; with two sets
// of registers it is a compile-time constant too.
void chunk(inout SUM S[TILES_K][TILES], const bool identity, uint t0, uint record, uint last, const uint turn) {
  const uint step = args.Hv * RECORD;
  const bool computes = STAGERS == 0 || computer < COMPUTERS, more = t0 + TOKENS < seq.T;
  if (AHEAD > 0) {
    if (AHEAD == 2) stage_next(t0, record, last, turn);
    if (!identity) {
      const uint set = turn & (SETS - 1);
      put_values(set, t0);
      fetch_values(set, t0 + AHEAD * TOKENS);
    }
    subgroup_barrier();
  } else if (STAGERS == 0) {
    put_keys(0, 0, t0);
    put_record(0, 0);
    if (!identity) put_values(0, t0);
    barrier();
    if (more) {
      fetch_keys(0, t0 + TOKENS);
      fetch_record(0, record + step);
      if (!identity) fetch_values(0, t0 + TOKENS);
    }
  } else if (computes) {
    if (!identity) put_values(0, t0);
    if (more && !identity) fetch_values(0, t0 + TOKENS);
    subgroup_barrier();
  } else {
    if (more) {
      put_keys(0, turn ^ 1, t0 + TOKENS);
      put_record(0, turn ^ 1);
    }
    if (t0 + 2 * TOKENS < seq.T) {
      fetch_keys(0, t0 + 2 * TOKENS);
      fetch_record(0, record + 2 * step);
    }
  }
  if (computes) {
    const uint k0 = turn * KEYS, q0 = k0 + KEY_ROWS * K_PITCH, t_at = turn * PREPARED;
    const uint p_at = t_at + FACTOR_ROWS * C_PITCH;
    const uint in_at = turn * FADES, out_at = in_at + C / 4, query_at = out_at + C / 4;
    SUM U[TILES_C][TILES], O[TILES_Q][TILES];
    [[unroll]] for (uint r = 0; r < TILES; r++) {
      [[unroll]] for (uint j = 0; j < TILES_C; j++) U[j][r] = SUM(0.0);
      [[unroll]] for (uint j = 0; j < TILES_Q; j++) O[j][r] = SUM(0.0);
    }
    // (K S)^T and (Q S)^T
    [[unroll]] for (uint x = 0; x < TILES_K; x++) {
      LEFT s[TILES];
      RIGHT turned[TILES];
      [[unroll]] for (uint r = 0; r < TILES; r++) {
        if (TURNED) {
          const SUM16 rounded = SUM16(S[x][r]);
          s[r] = LEFT(rounded);
          coopMatTransposeNV(turned[r], rounded);
        } else {
          s[r] = LEFT(S[x][r]);
        }
      }
      [[unroll]] for (uint j = 0; j < TILES_C; j++)
        if (HOLDS(j * TILE_N, TILE_N, x * TILE_K, TILE_K)) {
          RIGHT k;
          coopMatLoad(k, keys, k0 + KEY_ROW(j * TILE_N) * K_PITCH + x * TILE_K / 8, K_PITCH, COLS);
          [[unroll]] for (uint r = 0; r < TILES; r++) U[j][r] = coopMatMulAdd(s[r], k, U[j][r]);
        }
      [[unroll]] for (uint j = 0; j < TILES_Q; j++) {
        const uint at = q0 + j * TILE_N * K_PITCH + x * TILE_K / 8;
        if (TURNED) {
          LEFT q;
          coopMatLoad(q, keys, at, K_PITCH, ROWS);
          [[unroll]] for (uint r = 0; r < TILES; r++) O[j][r] = coopMatMulAdd(q, turned[r], O[j][r]);
        } else {
          RIGHT q;
          coopMatLoad(q, keys, at, K_PITCH, COLS);
          [[unroll]] for (uint r = 0; r < TILES; r++) O[j][r] = coopMatMulAdd(s[r], q, O[j][r]);
        }
      }
    }
    if (AHEAD == 1) stage_next(t0, record, last, turn);
    // V - e^G (K S), or with blocks K S and V; V', and V' with its decay to the chunk's end. A load with stride 0
    // copies one row to all rows.
    LEFT u[TILES_C][TILES], faded[TILES_C][TILES], v[R > 1 ? TILES_Q : 1][TILES];
    RIGHT turned_u[TILES_C][TILES];
    [[unroll]] for (uint j = 0; j < TILES_C; j++) {
      SUM fade;
      if (R == 1) coopMatLoad(fade, fades, in_at + j * TILE_N / 4, 0, ROWS);
      [[unroll]] for (uint r = 0; r < TILES; r++) {
        if (R > 1) {
          u[j][r] = LEFT(U[j][r]);
        } else if (identity) {
          u[j][r] = LEFT(-fade * U[j][r]);
        } else {
          SUM16 x;
          coopMatLoad(x, values, j * TILE_N * V_PITCH + computer * W8 + r * TILE_M / 8, V_PITCH, COLS);
          u[j][r] = LEFT(SUM(x) - fade * U[j][r]);
        }
      }
    }
    if (R > 1 && !identity)
      [[unroll]] for (uint j = 0; j < TILES_Q; j++)
        [[unroll]] for (uint r = 0; r < TILES; r++)
          coopMatLoad(v[j][r], values, j * TILE_K * V_PITCH + computer * W8 + r * TILE_M / 8, V_PITCH, COLS);
    [[unroll]] for (uint i = 0; i < TILES_C; i++) {
      [[unroll]] for (uint r = 0; r < TILES; r++) U[i][r] = SUM(0.0);
      [[unroll]] for (uint j = 0; j < (R > 1 ? TILES_C : i + 1); j++) {
        RIGHT t;
        coopMatLoad(t, factors, t_at + j * TILE_K * C_PITCH + i * TILE_N / 8, C_PITCH, ROWS);
        [[unroll]] for (uint r = 0; r < TILES; r++) U[i][r] = coopMatMulAdd(u[j][r], t, U[i][r]);
      }
      [[unroll]] for (uint j = 0; R > 1 && !identity && j < TILES_Q; j++) {
        RIGHT t;
        coopMatLoad(t, factors, t_at + (C + j * TILE_K) * C_PITCH + i * TILE_N / 8, C_PITCH, ROWS);
        [[unroll]] for (uint r = 0; r < TILES; r++) U[i][r] = coopMatMulAdd(v[j][r], t, U[i][r]);
      }
    }
    [[unroll]] for (uint j = 0; j < TILES_C; j++) {
      SUM fade;
      coopMatLoad(fade, fades, out_at + j * TILE_N / 4, 0, ROWS);
      [[unroll]] for (uint r = 0; r < TILES; r++) {
        if (TURNED)
          coopMatTransposeNV(turned_u[j][r], SUM16(U[j][r]));
        else
          u[j][r] = LEFT(U[j][r]);
        faded[j][r] = LEFT(fade * U[j][r]);
      }
    }
    [[unroll]] for (uint j = 0; j < TILES_Q; j++) {
      SUM fade;
      if (TURNED)
        coopMatLoad(fade, fades, query_at + j * TILE_N / 4, 0, COLS);
      else
        coopMatLoad(fade, fades, query_at + j * TILE_N / 4, 0, ROWS);
      [[unroll]] for (uint r = 0; r < TILES; r++) O[j][r] = fade * O[j][r];
    }
    // S
    const float kept = fades[in_at + C / 4 - 1].w;
    [[unroll]] for (uint x = 0; x < TILES_K; x++) {
      [[unroll]] for (uint r = 0; r < TILES; r++) S[x][r] = kept * S[x][r];
      [[unroll]] for (uint j = 0; j < TILES_C; j++)
        if (HOLDS(j * TILE_K, TILE_K, x * TILE_N, TILE_N)) {
          RIGHT k;
          coopMatLoad(k, keys, k0 + KEY_ROW(j * TILE_K) * K_PITCH + x * TILE_N / 8, K_PITCH, ROWS);
          [[unroll]] for (uint r = 0; r < TILES; r++) S[x][r] = coopMatMulAdd(faded[j][r], k, S[x][r]);
        }
    }
    // O
    [[unroll]] for (uint i = 0; i < TILES_Q; i++)
      [[unroll]] for (uint j = 0; j < TILES_C; j++)
        if (SEEN(i, j)) {
          const uint at = p_at + i * TILE_N * C_PITCH + j * TILE_K / 8;
          if (TURNED) {
            LEFT p;
            coopMatLoad(p, factors, at, C_PITCH, ROWS);
            [[unroll]] for (uint r = 0; r < TILES; r++) O[i][r] = coopMatMulAdd(p, turned_u[j][r], O[i][r]);
          } else {
            RIGHT p;
            coopMatLoad(p, factors, at, C_PITCH, COLS);
            [[unroll]] for (uint r = 0; r < TILES; r++) O[i][r] = coopMatMulAdd(u[j][r], p, O[i][r]);
          }
        }
    subgroup_barrier(); // V has been read
    [[unroll]] for (uint i = 0; i < TILES_Q; i++)
      [[unroll]] for (uint r = 0; r < TILES; r++) {
        const uint at = i * TILE_N * V_PITCH + computer * W8 + r * TILE_M / 8;
        if (TURNED)
          coopMatStore(SUM16(O[i][r]), values, at, V_PITCH, ROWS);
        else
          coopMatStore(SUM16(O[i][r]), values, at, V_PITCH, COLS);
      }
    subgroup_barrier();
    store_outputs(t0, identity);
    if (STAGERS > 0) subgroup_barrier(); // before the next V; else all wait below
  }
  barrier();
}

void walk(uint record, const bool identity) {
  const uint step = args.Hv * RECORD, last = record + (seq.T - 1) / TOKENS * step;
  uint state_at = seq.slot * args.state_stride + head * args.Dk * args.Dv + column0;
  const bool computes = STAGERS == 0 || computer < COMPUTERS;
  SUM S[TILES_K][TILES];
  if (identity) {
    const SUM unit = unit_tile();
    [[unroll]] for (uint x = 0; x < TILES_K; x++)
      [[unroll]] for (uint r = 0; r < TILES; r++)
        S[x][r] = (x * TILE_N == column0 + r * TILE_M ? 1.0 : 0.0) * unit;
  } else if (computes && (MODE == DELTA_MATRIX_WHOLE || first)) {
    [[unroll]] for (uint x = 0; x < WHOLE_K; x++)
      [[unroll]] for (uint r = 0; r < TILES; r++) load_tile(S[x][r], state_at, x, r);
    if (WHOLE_K < TILES_K) // an empty loop would cost registers (NVIDIA)
      [[unroll]] for (uint x = WHOLE_K; x < TILES_K; x++)
        [[unroll]] for (uint r = 0; r < TILES; r++) load_corner(S[x][r], state_at, x, r);
  } else {
    [[unroll]] for (uint x = 0; x < TILES_K; x++)
      [[unroll]] for (uint r = 0; r < TILES; r++) S[x][r] = SUM(0.0);
  }

  if (computes && !identity)
    [[unroll]] for (uint i = 0; i < SETS; i++) fetch_values(i, i * TOKENS);
  if (STAGERS == 0 || !computes) {
    fetch_keys(0, 0);
    fetch_record(0, record);
    if (BUFFERS == 2) {
      put_keys(0, 0, 0);
      put_record(0, 0);
      [[unroll]] for (uint i = 1; i <= SETS; i++) {
        fetch_keys(i & (SETS - 1), i * TOKENS);
        fetch_record(i & (SETS - 1), min(record + i * step, last));
      }
    }
  }
  if (BUFFERS == 2) barrier();
  uint turn = 0;
  for (uint t0 = 0; t0 < seq.T; t0 += TOKENS, record += step) {
    if (SETS == 2) {
      chunk(S, identity, t0, record, last, 0);
      t0 += TOKENS;
      record += step;
      if (t0 >= seq.T) break;
      chunk(S, identity, t0, record, last, 1);
    } else {
      chunk(S, identity, t0, record, last, turn);
      if (BUFFERS == 2) turn ^= 1;
    }
  }
  if (computes) {
    [[unroll]] for (uint x = 0; x < STORED_K; x++)
      [[unroll]] for (uint r = 0; r < TILES; r++) store_tile(S[x][r], state_at, x, r, identity);
    if (STORED_K < TILES_K)
      [[unroll]] for (uint x = STORED_K; x < TILES_K; x++)
        [[unroll]] for (uint r = 0; r < TILES; r++) store_corner(S[x][r], state_at, x, r);
  }
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
