// rule_matrix_pairs.glsl: the part of rule_matrix_grads that is of pairs of steps: F, M and X; and the slabs of rows
// that products read.

// ---------------------------------------------------------------- slabs

// Slabs x of up to three tensors, WIDE or SLAB columns wide, are fetched while those before them are used.
const uint EACH = (BLOCK * WIDE / 8 + LANES - 1) / LANES;
uvec4 next_rows[3][EACH];

void fetch(const uint n, uint from, const uint wide, uint x) {
  [[unroll]] for (uint j = 0; j < (BLOCK * wide / 8 + LANES - 1) / LANES; j++) {
    const uint i = j * LANES + stager;
    if (BLOCK * wide / 8 % LANES == 0 || i < BLOCK * wide / 8)
      next_rows[n][j] = rows[from + i / (wide / 8) * row8 + x * (wide / 8) + i % (wide / 8)];
  }
}

void put(const uint n, const uint wide, const bool negative) {
  const uint pitch = wide / 8 + 1;
  [[unroll]] for (uint j = 0; j < (BLOCK * wide / 8 + LANES - 1) / LANES; j++) {
    const uint i = j * LANES + stager;
    if (BLOCK * wide / 8 % LANES == 0 || i < BLOCK * wide / 8)
      pool[(n * BLOCK + i / (wide / 8)) * pitch + i % (wide / 8)] = next_rows[n][j] ^ (negative ? 0x80008000u : 0);
  }
}

// -e^G * Z
void put_faded() {
  [[unroll]] for (uint j = 0; j < (BLOCK * SLAB / 8 + LANES - 1) / LANES; j++) {
    const uint i = j * LANES + stager, r = i / (SLAB / 8);
    if (BLOCK * SLAB / 8 % LANES != 0 && i >= BLOCK * SLAB / 8) continue;
    uvec4 z = next_rows[1][j] ^ 0x80008000u;
    if (GATED != 0) {
      const float f = fade_in[r / 4][r % 4];
      [[unroll]] for (uint n = 0; n < 4; n++) z[n] = packHalf2x16(f * unpackHalf2x16(z[n]));
    }
    pool[(BLOCK + r) * S_PITCH + i % (SLAB / 8)] = z;
  }
}

void fetch_values(uint x) {
  fetch(0, do_at, WIDE, x);
  fetch(1, v_at, WIDE, x);
  fetch(2, z_at, WIDE, x);
}

void fetch_keys(uint x) {
  fetch(0, q_at, WIDE, x);
  fetch(1, k_at, WIDE, x);
}

// dO, V' and -Z
void put_values() {
  barrier();
  put(0, WIDE, false);
  put(1, WIDE, false);
  put(2, WIDE, true);
  barrier();
}

void put_keys() {
  barrier();
  put(0, WIDE, false);
  put(1, WIDE, false);
  barrier();
}

// ---------------------------------------------------------------- pairs of steps

uint row_of(uint job) {
  uint i = 0;
  while ((i + 1) * (i + 2) / 2 <= job) i++;
  return i;
}

// Adds the products of tensor 0, and of the n-th, with tensor 1, for the subgroup's tiles. A macro, since a function's
// matrices would be copies.
#define MULTIPLY_SLABS(one, other, nth)                                                                                \
  [[unroll]] for (uint y = 0; y < WIDE / TILE; y++)                                                                    \
    [[unroll]] for (uint n = 0; n < JOBS_EACH; n++) {                                                                  \
      LEFT a, b;                                                                                                       \
      RIGHT c;                                                                                                         \
      const uint i = is[n] * TILE * W_PITCH + y * T8;                                                                  \
      coopMatLoad(a, pool, i, W_PITCH, BY_ROWS);                                                                       \
      coopMatLoad(b, pool, nth * BLOCK * W_PITCH + i, W_PITCH, BY_ROWS);                                               \
      coopMatLoad(c, pool, (BLOCK + js[n] * TILE) * W_PITCH + y * T8, W_PITCH, BY_COLUMNS);                            \
      one[n] = coopMatMulAdd(a, c, one[n]);                                                                            \
      other[n] = coopMatMulAdd(b, c, other[n]);                                                                        \
    }

// dV of the slab that put_values has put, from column `from` of a row on.
void write_values(uint from) {
  const uint W4 = WIDE / 4;
  [[unroll]] for (uint n = 0; n < (BLOCK * W4 + LANES - 1) / LANES; n++) {
    const uint i = n * LANES + stager, r = i / W4, c = i % W4, to = ((row + step0 + r) * args.qkv_stride + from) / 4 + c;
    if (BLOCK * W4 % LANES != 0 && i >= BLOCK * W4) continue;
    const uvec4 eight = pool[(2 * BLOCK + r) * W_PITCH + c / 2];
    const uvec2 z = c % 2 == 0 ? eight.xy : eight.zw;
    vec4 v = -by * vec4(unpackHalf2x16(z.x), unpackHalf2x16(z.y));
    if (args.add != 0) v += dqkv4[to];
    dqkv4[to] = v;
  }
}

// Fetched: slab 0 of the values. F, M, the diagonal of Z V'^T, X, and dV of a whole block. No matrix depends on a condition, for NVIDIA's compiler would keep it in local
// memory. factor: from the block's factor of dO to the sequence's.
void make_pairs(float factor, uint v_from) {
  SUM B[JOBS_EACH], Z[JOBS_EACH], X[JOBS_EACH];
  uint is[JOBS_EACH], js[JOBS_EACH]; // of the subgroup's tiles; several subgroups may have the last
  [[unroll]] for (uint n = 0; n < JOBS_EACH; n++) {
    const uint job = min(n * SUBGROUPS + mine, JOBS - 1);
    is[n] = row_of(job);
    js[n] = job - is[n] * (is[n] + 1) / 2;
    B[n] = Z[n] = X[n] = SUM(0.0);
  }
  for (uint x = 0; x < DV / WIDE; x++) {
    put_values();
    if (x + 1 < DV / WIDE)
      fetch_values(x + 1);
    else if (GATED != 0)
      fetch_keys(0);
    if (whole) write_values(v_from + x * WIDE);
    MULTIPLY_SLABS(B, Z, 2)
  }
  SUM KK[JOBS_EACH];
  if (GATED != 0) {
    [[unroll]] for (uint n = 0; n < JOBS_EACH; n++) KK[n] = SUM(0.0);
    for (uint x = 0; x < DK / WIDE; x++) {
      put_keys();
      if (x + 1 < DK / WIDE) fetch_keys(x + 1);
      MULTIPLY_SLABS(X, KK, 1)
    }
  }
  fetch(0, v_at, V_SLAB, 0); // for columns()
  barrier();
  make_decays();
  barrier();
  [[unroll]] for (uint n = 0; n < JOBS_EACH; n++) {
    SUM d, one;
    coopMatLoad(d, pool, is[n] * TILE * D_PITCH + js[n] * T4, D_PITCH, BY_ROWS);
    coopMatLoad(one, unit, 0, T4, BY_ROWS);
    B[n] = (args.scale * factor) * (B[n] * d);
    const bool same = is[n] == js[n];
    const uint to = is[n] * TILE * F_PITCH + js[n] * T8;
    coopMatStore(SUM16(B[n]), pool, SCORES + to, F_PITCH, BY_ROWS);
    coopMatStore(Z[n], at_rows, (same ? is[n] : TILES_B) * TILE * TILE, TILE, BY_ROWS);
    d = d - (same ? 1.0 : 0.0) * one;
    Z[n] = Z[n] * d;
    coopMatStore(SUM16(Z[n]), pool, PAIRS + to, F_PITCH, BY_ROWS);
    if (GATED != 0) X[n] = B[n] * X[n] + Z[n] * KK[n];
  }
  barrier();
  for (uint r = stager; r < BLOCK; r += LANES)
    diagonal[r] = -at_rows[r / TILE * TILE * TILE + r % TILE * (TILE + 1)];
  if (GATED == 0) return;
  [[unroll]] for (uint n = 0; n < JOBS_EACH; n++)
    coopMatStore(X[n], pool, is[n] * TILE * D_PITCH + js[n] * T4, D_PITCH, BY_ROWS);
  barrier();
}

// crossing_t = sum_{i>=t, j<t} X_ij: in each row a number becomes its sum with those before it, then columns are added.
void add_rectangles() {
  for (uint r = stager; r < BLOCK; r += LANES) {
    float sum = 0.0;
    [[unroll]] for (uint n = 0; n < BLOCK / 4; n++) {
      vec4 x = uintBitsToFloat(pool[r * D_PITCH + n]);
      x.x += sum;
      x.y += x.x;
      x.z += x.y;
      sum = x.w += x.z;
      pool[r * D_PITCH + n] = floatBitsToUint(x);
    }
  }
  barrier();
  const uint PARTS = LANES >= 4 * BLOCK ? 4 : LANES >= 2 * BLOCK ? 2 : 1, ROWS = BLOCK / PARTS; // of the rows
  for (uint e = stager; e < BLOCK * PARTS; e += LANES) {
    const uint t = e % BLOCK, from = e / BLOCK * ROWS;
    float sum = 0.0;
    [[unroll]] for (uint n = 0; n < ROWS; n++) {
      const float x = number((from + n) * D_PITCH, max(t, 1) - 1);
      sum += from + n >= t && t > 0 ? x : 0.0;
    }
    at_rows[e] = sum;
  }
  barrier();
  for (uint t = stager; t < BLOCK; t += LANES) {
    float sum = 0.0;
    [[unroll]] for (uint n = 0; n < PARTS; n++) sum += at_rows[n * BLOCK + t];
    crossing[t] = sum;
  }
  barrier();
}
