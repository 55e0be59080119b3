// rule_matrix_columns.glsl: the part of rule_matrix_grads that is of columns of queries and keys: their gradients, and
// the sums a, c and <S, dS> of dg.

// Adds the row sums of two tiles to a and c of the group's steps from `step` on, unless the tiles are none of the keys'.
// Half of a subgroup sums each tile.
void add_row_sums(SUM a, SUM c, uint group, uint step, bool has) {
  subgroup_barrier();
  coopMatStore(a, pool, part, A_PITCH, BY_ROWS);
  coopMatStore(c, pool, part + TILE * A_PITCH, A_PITCH, BY_ROWS);
  subgroup_barrier();
  for (uint r = lane; r < 2 * TILE; r += SUBGROUP) {
    vec4 sum = vec4(0.0);
    [[unroll]] for (uint n = 0; n < T4; n++) sum += uintBitsToFloat(pool[part + r * A_PITCH + n]);
    const uint to = (r / TILE * GROUPS + group) * BLOCK + step + r % TILE;
    if (has) at_rows[to] += sum.x + sum.y + sum.z + sum.w;
  }
}

// A round's columns of keys or queries, fetched while what is before them in `pool` is used.
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

// Adds a round's columns to a gradient of keys or queries, whose row begins at from + m step columns from the token's.
// Of four numbers, all loads come before all stores, since the compiler cannot reorder them.
void add_columns(SUM x[TILES_EACH], uint round, uint from, uint step, const bool last) {
  const uint PART_ROWS = AT_ONCE * TILE, ROWS = SPLIT * PART_ROWS; // of a part; that are added at once
  const uint to = mine % SPLIT * PART_ROWS * G_PITCH + mine / SPLIT * T4;
  [[unroll]] for (uint i0 = 0; i0 < TILES_EACH; i0 += AT_ONCE) {
    barrier();
    [[unroll]] for (uint i = 0; i < AT_ONCE; i++)
      coopMatStore(x[i0 + i], pool, to + i * TILE * G_PITCH, G_PITCH, BY_ROWS);
    barrier();
    if (WHOLE != 0 && step0 + BLOCK <= seq.T) {
      const uint C4 = COLUMNS / 4, EACH = (ROWS * C4 + LANES - 1) / LANES;
      vec4 old[EACH];
      [[unroll]] for (uint n = 0; n < EACH; n++) {
        const uint i = min(n * LANES + stager, ROWS * C4 - 1), r = i / C4, c = min(round * C4 + i % C4, DK / 4 - 1);
        const uint row = seq.row + step0 + r / PART_ROWS * TILES_EACH * TILE + i0 * TILE + r % PART_ROWS;
        old[n] = vec4(0.0);
        if (adds) old[n] = dqkv4[(row * args.qkv_stride + from) / 4 + c];
      }
      [[unroll]] for (uint n = 0; n < EACH; n++) {
        const uint i = n * LANES + stager, r = i / C4, c = round * C4 + i % C4;
        const uint row = seq.row + step0 + r / PART_ROWS * TILES_EACH * TILE + i0 * TILE + r % PART_ROWS;
        if (i < ROWS * C4 && c < DK / 4)
          dqkv4[(row * args.qkv_stride + from) / 4 + c] = old[n] + by * uintBitsToFloat(pool[r * G_PITCH + i % C4]);
      }
    } else {
      for (uint i = stager; i < ROWS * COLUMNS; i += LANES) {
        const uint r = i / COLUMNS, c = round * COLUMNS + i % COLUMNS;
        const uint s = step0 + r / PART_ROWS * TILES_EACH * TILE + i0 * TILE + r % PART_ROWS, t = s / N, m = s % N;
        const uint at = (seq.row + t) * args.qkv_stride + from + m * step + c;
        if (t < seq.T && c < args.Dk && (!last || m == N - 1))
          dqkv[at] = (adds ? dqkv[at] : 0.0) + by * number(r * G_PITCH, i % COLUMNS);
      }
    }
  }
}

// The gradients of a round's columns of queries and keys. Subgroups without columns compute any others, for nothing.
void columns(uint round, uint state, uint key_head, float factor) {
  const uint group = mine / SPLIT, i0 = mine % SPLIT * TILES_EACH; // the first of its tiles of steps
  const uint own = (round * GROUPS + group) * TILE, column = min(own, DK - TILE);
  const bool has = own < DK;
  SUM dq[TILES_EACH], dk[TILES_EACH], zs[TILES_EACH];
  float inner = 0.0;
  [[unroll]] for (uint i = 0; i < TILES_EACH; i++) dq[i] = dk[i] = zs[i] = SUM(0.0);
  if (round > 0) fetch_values(0);
  for (uint x = 0; x < DV / SLAB; x++) {
    RIGHT s[SLAB / TILE], d[SLAB / TILE];
    [[unroll]] for (uint y = 0; y < SLAB / TILE; y++) {
      const uint at = state + column * V8 + x * (SLAB / 8) + y * T8;
      coopMatLoad(s[y], states, at, V8, BY_COLUMNS);
      coopMatLoad(d[y], states, at + DK * V8, V8, BY_COLUMNS);
    }
    put_values();
    if (x + 1 < DV / SLAB)
      fetch_values(x + 1);
    else
      fetch_columns(k_at, round);
    [[unroll]] for (uint y = 0; y < SLAB / TILE; y++) {
      if (GATED != 0)
        [[unroll]] for (uint e = 0; e < s[y].length(); e++) inner += float(s[y][e]) * float(d[y][e]);
      [[unroll]] for (uint i = 0; i < TILES_EACH; i++) {
        LEFT o, v, z;
        const uint at = (i0 + i) * TILE * S_PITCH + y * T8;
        coopMatLoad(o, pool, at, S_PITCH, BY_ROWS);
        coopMatLoad(v, pool, S_ROWS + at, S_PITCH, BY_ROWS);
        coopMatLoad(z, pool, 2 * S_ROWS + at, S_PITCH, BY_ROWS);
        dq[i] = coopMatMulAdd(o, s[y], dq[i]);
        dk[i] = coopMatMulAdd(v, d[y], dk[i]);
        if (GATED != 0)
          zs[i] = coopMatMulAdd(z, s[y], zs[i]);
        else
          dk[i] = coopMatMulAdd(z, s[y], dk[i]);
      }
    }
  }
  barrier(); // the slabs have been read
  if (GATED != 0) {
    inner = subgroupAdd(inner);
    if (lane == 0 && has && i0 == 0) carried[mine] += inner;
  }
  [[unroll]] for (uint i = 0; i < TILES_EACH; i++) {
    if (GATED == 0) {
      dq[i] = (args.scale * factor) * dq[i];
      continue;
    }
    const uint step = (i0 + i) * TILE;
    SUM in_, out_;
    SUM16 q, k;
    coopMatLoad(in_, fade_in, step / 4, 0, BY_COLUMNS);
    coopMatLoad(out_, fade_out, step / 4, 0, BY_COLUMNS);
    dq[i] = (args.scale * factor) * (in_ * dq[i]);
    dk[i] = out_ * dk[i];
    zs[i] = in_ * zs[i];
    coopMatLoad(q, rows, q_at + step * row8 + column / 8, row8, BY_ROWS);
    coopMatLoad(k, rows, k_at + step * row8 + column / 8, row8, BY_ROWS);
    add_row_sums(SUM(q) * dq[i] + SUM(k) * zs[i], SUM(k) * dk[i], group, step, has);
    dk[i] = dk[i] + zs[i];
  }
  put_columns();
  fetch_columns(q_at, round);
  [[unroll]] for (uint j = 0; j < TILES_B; j++) {
    RIGHT k;
    coopMatLoad(k, pool, j * TILE * C_PITCH + group * T8, C_PITCH, BY_ROWS);
    [[unroll]] for (uint n = 0; n < TILES_EACH; n++) {
      LEFT f, m;
      const uint i = i0 + n;
      if (i >= j) {
        coopMatLoad(f, pool, SCORES + i * TILE * F_PITCH + j * T8, F_PITCH, BY_ROWS);
        coopMatLoad(m, pool, PAIRS + i * TILE * F_PITCH + j * T8, F_PITCH, BY_ROWS);
        dq[n] = coopMatMulAdd(f, k, dq[n]);
        dk[n] = coopMatMulAdd(m, k, dk[n]);
      }
      if (i <= j) {
        coopMatLoad(m, pool, PAIRS + j * TILE * F_PITCH + i * T8, F_PITCH, BY_COLUMNS);
        dk[n] = coopMatMulAdd(m, k, dk[n]);
      }
    }
  }
  put_columns();
  [[unroll]] for (uint j = 0; j < TILES_B; j++) {
    RIGHT q;
    coopMatLoad(q, pool, j * TILE * C_PITCH + group * T8, C_PITCH, BY_ROWS);
    [[unroll]] for (uint n = 0; n < TILES_EACH; n++) {
      LEFT f;
      if (i0 + n <= j) {
        coopMatLoad(f, pool, SCORES + j * TILE * F_PITCH + (i0 + n) * T8, F_PITCH, BY_COLUMNS);
        dk[n] = coopMatMulAdd(f, q, dk[n]);
      }
    }
  }
  const uint keys = args.H * args.Dk;
  add_columns(dq, round, key_head * args.Dk, 0, true);
  add_columns(dk, round, keys + key_head * args.Dk, keys, false);
}
