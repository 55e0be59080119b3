// rule_matrix_columns.glsl: the part of rule_matrix_grads that works on columns of queries and keys: it computes their
// gradients, and the sums a, c and <S, dS> of dg.

// Adds the row sums of TOGETHER tiles to a (which = 0) or c (which = 1) of the group, from step `step` on. has: whether
// the tiles' columns are below DK; if not, nothing is added.
const uint TOGETHER = TILES_EACH % 2 == 0 ? 2 : 1;
void add_row_sums(SUM x[TOGETHER], const uint which, uint group, uint step, bool has) {
  subgroup_barrier();
  [[unroll]] for (uint i = 0; i < TOGETHER; i++)
    coopMatStore(x[i], pool, part + i * TILE * A_PITCH, A_PITCH, BY_ROWS);
  subgroup_barrier();
  for (uint r = lane; r < TOGETHER * TILE; r += SUBGROUP) {
    vec4 sum = vec4(0.0);
    [[unroll]] for (uint n = 0; n < T4; n++) sum += uintBitsToFloat(pool[part + r * A_PITCH + n]);
    if (has) at_rows[(which * GROUPS + group) * BLOCK + step + r] += sum.x + sum.y + sum.z + sum.w;
  }
}

// A round's columns of keys or queries. They are loaded into registers while `pool` is still in use.
const uint C_EACH = (BLOCK * COLUMNS / 8 + LANES - 1) / LANES;
uvec4 next_columns[C_EACH];

void fetch_columns(uint from, uint round) {
  [[unroll]] for (uint n = 0; n < C_EACH; n++) {
    const uint i = min(n * LANES + stager, BLOCK * COLUMNS / 8 - 1), column = round * (COLUMNS / 8) + i % (COLUMNS / 8);
    next_columns[n] = rows[from + i / (COLUMNS / 8) * row8 + (column < K8 ? column : 0)];
  }
}

void put_columns() {
  barrier();
  [[unroll]] for (uint n = 0; n < C_EACH; n++) {
    const uint i = n * LANES + stager;
    if (i < BLOCK * COLUMNS / 8) pool[i / (COLUMNS / 8) * C_PITCH + i % (COLUMNS / 8)] = next_columns[n];
  }
  barrier();
}

// Adds a round's columns to a gradient of keys or queries. The row of update m of a token begins from + m step columns
// after the token's row. Of fours, all are loaded before any is stored, because the compiler cannot reorder loads and
// stores.
void add_columns(SUM x[TILES_EACH][OWN], uint round, uint from, uint step, const bool last) {
  const uint PART_ROWS = AT_ONCE * TILE, ROWS = SPLIT * PART_ROWS; // rows of one part; rows that are added at once
  const uint to = mine % SPLIT * PART_ROWS * G_PITCH + mine / SPLIT * OWN * T4;
  [[unroll]] for (uint i0 = 0; i0 < TILES_EACH; i0 += AT_ONCE) {
    barrier();
    [[unroll]] for (uint i = 0; i < AT_ONCE; i++)
      [[unroll]] for (uint c = 0; c < OWN; c++)
        coopMatStore(x[i0 + i][c], pool, to + i * TILE * G_PITCH + c * T4, G_PITCH, BY_ROWS);
    barrier();
    if (whole) {
      const uint C4 = COLUMNS / 4, EACH = (ROWS * C4 + LANES - 1) / LANES;
      vec4 old[EACH];
      [[unroll]] for (uint n = 0; n < EACH; n++) {
        const uint i = min(n * LANES + stager, ROWS * C4 - 1), r = i / C4, c = min(round * C4 + i % C4, DK / 4 - 1);
        const uint to_row = row + step0 + r / PART_ROWS * TILES_EACH * TILE + i0 * TILE + r % PART_ROWS;
        old[n] = vec4(0.0);
        if (adds) old[n] = dqkv4[(to_row * args.qkv_stride + from) / 4 + c];
      }
      [[unroll]] for (uint n = 0; n < EACH; n++) {
        const uint i = n * LANES + stager, r = i / C4, c = round * C4 + i % C4;
        const uint to_row = row + step0 + r / PART_ROWS * TILES_EACH * TILE + i0 * TILE + r % PART_ROWS;
        if (i < ROWS * C4 && c < DK / 4)
          dqkv4[(to_row * args.qkv_stride + from) / 4 + c] = old[n] + by * uintBitsToFloat(pool[r * G_PITCH + i % C4]);
      }
    } else {
      for (uint i = stager; i < ROWS * COLUMNS; i += LANES) {
        const uint r = i / COLUMNS, c = round * COLUMNS + i % COLUMNS;
        const uint s = step0 + r / PART_ROWS * TILES_EACH * TILE + i0 * TILE + r % PART_ROWS, t = s / N, m = s % N;
        const uint at = (row + t) * args.qkv_stride + from + m * step + c;
        if (t < T && c < args.Dk && (!last || m == N - 1))
          dqkv[at] = (adds ? dqkv[at] : 0.0) + by * number(r * G_PITCH, i % COLUMNS);
      }
    }
  }
}

// Loads the subgroup's tiles of S (from 0) or dS (from DK * V8) in slab x. A macro, because a function would
// copy the matrices.
#define LOAD_STATES(to, from, wide, x)                                                                                 \
  [[unroll]] for (uint y = 0; y < wide / TILE; y++)                                                                    \
    [[unroll]] for (uint c = 0; c < OWN; c++) {                                                                        \
      const uint k = column + c * TILE, v = (x) * wide + y * TILE;                                                     \
      const uint at = state + (from) + (k / 16 * (DV / 16) + v / 16) * 32 + k % 16 * 2 + v % 16 / 8;                   \
      coopMatLoad(to[y][c], states, at, 2, BY_COLUMNS);                                                                \
    }

#define COPY_STATES(to, from, wide)                                                                                    \
  [[unroll]] for (uint y = 0; y < wide / TILE; y++)                                                                    \
    [[unroll]] for (uint c = 0; c < OWN; c++) to[y][c] = from[y][c];

// Adds the products of the subgroup's steps in the n-th staged slab with tiles of a state.
#define MULTIPLY_STATES(sum, n, pitch, s)                                                                              \
  {                                                                                                                    \
    LEFT o;                                                                                                            \
    coopMatLoad(o, pool, (n * BLOCK + (i0 + i) * TILE) * pitch + y * T8, pitch, BY_ROWS);                              \
    [[unroll]] for (uint c = 0; c < OWN; c++) sum[i][c] = coopMatMulAdd(o, s[y][c], sum[i][c]);                        \
  }

// Adds the product of pairs of steps with a staged round of K or Q.
#define MULTIPLY_PAIRS(sum, from, layout, s)                                                                           \
  {                                                                                                                    \
    LEFT f;                                                                                                            \
    coopMatLoad(f, pool, from, F_PITCH, layout);                                                                       \
    [[unroll]] for (uint c = 0; c < OWN; c++) sum[n][c] = coopMatMulAdd(f, s[c], sum[n][c]);                           \
  }

// The gradients of a round's columns of queries and keys. Subgroups without columns of their own compute
// others, whose results are not used. The caller fetches slab 0 of V' for round 0. A state's tiles are loaded a slab
// ahead.
void columns(uint round, uint state, uint key_head, float factor) {
  const uint group = mine / SPLIT, i0 = mine % SPLIT * TILES_EACH; // the first of its tiles of steps
  const uint own = (round * GROUPS + group) * OWN * TILE, column = min(own, DK - OWN * TILE);
  const bool has = own < DK;
  SUM dq[TILES_EACH][OWN], dk[TILES_EACH][OWN];
  RIGHT next[SLAB / TILE][OWN], next_d[V_SLAB / TILE][OWN];
  float inner = 0.0;
  [[unroll]] for (uint i = 0; i < TILES_EACH; i++)
    [[unroll]] for (uint c = 0; c < OWN; c++) dq[i][c] = dk[i][c] = SUM(0.0);
  if (round > 0) fetch(0, v_at, V_SLAB, 0);
  LOAD_STATES(next_d, DK * V8, V_SLAB, 0)
  LOAD_STATES(next, 0, SLAB, 0)
  for (uint x = 0; x < DV / V_SLAB; x++) { // V' dS^T
    RIGHT d[V_SLAB / TILE][OWN], s[SLAB / TILE][OWN];
    const uint x1 = min(x + 1, DV / V_SLAB - 1); // clamped: no load of a matrix may depend on a condition
    COPY_STATES(d, next_d, V_SLAB)
    if (GATED != 0) COPY_STATES(s, next, SLAB)
    barrier();
    put(0, V_SLAB, false);
    barrier();
    LOAD_STATES(next_d, DK * V8, V_SLAB, x1)
    if (GATED != 0) LOAD_STATES(next, 0, SLAB, x1)
    fetch(0, v_at, V_SLAB, x1);
    if (GATED != 0) {
      [[unroll]] for (uint y = 0; y < SLAB / TILE; y++)
        [[unroll]] for (uint c = 0; c < OWN; c++)
          [[unroll]] for (uint e = 0; e < s[y][c].length(); e++) inner += float(s[y][c][e]) * float(d[y][c][e]);
    }
    [[unroll]] for (uint y = 0; y < V_SLAB / TILE; y++)
      [[unroll]] for (uint i = 0; i < TILES_EACH; i++) MULTIPLY_STATES(dk, 0, V_PITCH, d)
  }
  if (GATED != 0) LOAD_STATES(next, 0, SLAB, 0)
  fetch(0, do_at, SLAB, 0);
  fetch(1, z_at, SLAB, 0);
  if (GATED != 0) {
    inner = subgroupAdd(inner);
    if (lane == 0 && has && i0 == 0) carried[mine] += inner;
    barrier(); // the slab has been read
    [[unroll]] for (uint i1 = 0; i1 < TILES_EACH; i1 += TOGETHER) {
      SUM sums[TOGETHER];
      [[unroll]] for (uint n = 0; n < TOGETHER; n++) {
        const uint i = i1 + n, step = (i0 + i) * TILE;
        SUM f;
        coopMatLoad(f, fade_out, step / 4, 0, BY_COLUMNS);
        sums[n] = SUM(0.0);
        [[unroll]] for (uint c = 0; c < OWN; c++) {
          SUM16 k;
          coopMatLoad(k, rows, k_at + step * row8 + column / 8 + c * T8, row8, BY_ROWS);
          dk[i][c] = f * dk[i][c];
          sums[n] = sums[n] + SUM(k) * dk[i][c];
        }
      }
      add_row_sums(sums, 1, group, (i0 + i1) * TILE, has);
    }
  }
  for (uint x = 0; x < DV / SLAB; x++) { // dO S^T and -e^G * (Z S^T)
    RIGHT s[SLAB / TILE][OWN];
    const uint x1 = min(x + 1, DV / SLAB - 1);
    COPY_STATES(s, next, SLAB)
    barrier();
    put(0, SLAB, false);
    put_faded();
    barrier();
    LOAD_STATES(next, 0, SLAB, x1)
    fetch(0, do_at, SLAB, x1);
    fetch(1, z_at, SLAB, x1);
    [[unroll]] for (uint y = 0; y < SLAB / TILE; y++)
      [[unroll]] for (uint i = 0; i < TILES_EACH; i++) {
        MULTIPLY_STATES(dq, 0, S_PITCH, s)
        MULTIPLY_STATES(dk, 1, S_PITCH, s)
      }
  }
  fetch_columns(k_at, round);
  [[unroll]] for (uint i = 0; i < TILES_EACH; i++)
    [[unroll]] for (uint c = 0; c < OWN; c++) dq[i][c] = (args.scale * factor) * dq[i][c];
  if (GATED != 0) {
    barrier(); // the slabs have been read
    [[unroll]] for (uint i1 = 0; i1 < TILES_EACH; i1 += TOGETHER) {
      SUM sums[TOGETHER];
      [[unroll]] for (uint n = 0; n < TOGETHER; n++) {
        const uint i = i1 + n, step = (i0 + i) * TILE;
        SUM f;
        coopMatLoad(f, fade_in, step / 4, 0, BY_COLUMNS);
        sums[n] = SUM(0.0);
        [[unroll]] for (uint c = 0; c < OWN; c++) {
          SUM16 q, k;
          coopMatLoad(q, rows, q_at + step * row8 + column / 8 + c * T8, row8, BY_ROWS);
          coopMatLoad(k, rows, k_at + step * row8 + column / 8 + c * T8, row8, BY_ROWS);
          dq[i][c] = f * dq[i][c];
          sums[n] = sums[n] + SUM(q) * dq[i][c] + SUM(k) * dk[i][c];
        }
      }
      add_row_sums(sums, 0, group, (i0 + i1) * TILE, has);
    }
  }
  put_columns();
  fetch_columns(q_at, round);
  [[unroll]] for (uint j = 0; j < TILES_B; j++) {
    RIGHT k[OWN];
    [[unroll]] for (uint c = 0; c < OWN; c++)
      coopMatLoad(k[c], pool, j * TILE * C_PITCH + (group * OWN + c) * T8, C_PITCH, BY_ROWS);
    [[unroll]] for (uint n = 0; n < TILES_EACH; n++) {
      const uint i = i0 + n, lower = i * TILE * F_PITCH + j * T8, upper = j * TILE * F_PITCH + i * T8;
      if (i >= j) {
        MULTIPLY_PAIRS(dq, SCORES + lower, BY_ROWS, k)
        MULTIPLY_PAIRS(dk, PAIRS + lower, BY_ROWS, k)
      }
      if (i <= j) MULTIPLY_PAIRS(dk, PAIRS + upper, BY_COLUMNS, k)
    }
  }
  put_columns();
  [[unroll]] for (uint j = 0; j < TILES_B; j++) {
    RIGHT q[OWN];
    [[unroll]] for (uint c = 0; c < OWN; c++)
      coopMatLoad(q[c], pool, j * TILE * C_PITCH + (group * OWN + c) * T8, C_PITCH, BY_ROWS);
    [[unroll]] for (uint n = 0; n < TILES_EACH; n++)
      if (i0 + n <= j) MULTIPLY_PAIRS(dk, SCORES + j * TILE * F_PITCH + (i0 + n) * T8, BY_COLUMNS, q)
  }
  const uint keys = args.H * args.Dk;
  add_columns(dq, round, key_head * args.Dk, 0, true);
  add_columns(dk, round, keys + key_head * args.Dk, keys, false);
}
