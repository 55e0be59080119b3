// rule_matrix_pairs.glsl: the part of rule_matrix_grads that is of pairs of steps: F, M and X; and the slabs of rows
// that products read.

// ---------------------------------------------------------------- slabs

// Slabs x of up to three tensors are fetched while those before them are used.
const uint S_EACH = (BLOCK * SLAB / 8 + LANES - 1) / LANES;
uvec4 next[3][S_EACH];

void fetch(const uint n, uint from, uint x) {
  [[unroll]] for (uint j = 0; j < S_EACH; j++) {
    const uint i = j * LANES + stager;
    if (BLOCK * SLAB / 8 % LANES == 0 || i < BLOCK * SLAB / 8)
      next[n][j] = rows[from + i / (SLAB / 8) * row8 + x * (SLAB / 8) + i % (SLAB / 8)];
  }
}

void put(const uint n, const bool negative) {
  [[unroll]] for (uint j = 0; j < S_EACH; j++) {
    const uint i = j * LANES + stager;
    if (BLOCK * SLAB / 8 % LANES == 0 || i < BLOCK * SLAB / 8)
      pool[n * S_ROWS + i / (SLAB / 8) * S_PITCH + i % (SLAB / 8)] = next[n][j] ^ (negative ? 0x80008000u : 0);
  }
}

void fetch_values(uint x) {
  fetch(0, do_at, x);
  fetch(1, v_at, x);
  fetch(2, z_at, x);
}

void fetch_keys(uint x) {
  fetch(0, q_at, x);
  fetch(1, k_at, x);
}

// dO, V' and -Z
void put_values() {
  barrier();
  put(0, false);
  put(1, false);
  put(2, true);
  barrier();
}

void put_keys() {
  barrier();
  put(0, false);
  put(1, false);
  barrier();
}

// ---------------------------------------------------------------- pairs of steps

uint row_of(uint job) {
  uint i = 0;
  while ((i + 1) * (i + 2) / 2 <= job) i++;
  return i;
}

// Adds the products of slab 0, and of the one at `from`, with slab 1, for the subgroup's tiles. A macro, since a
// function's matrices would be copies.
#define MULTIPLY_SLABS(one, other, from)                                                                               \
  [[unroll]] for (uint y = 0; y < SLAB / TILE; y++)                                                                    \
    [[unroll]] for (uint n = 0; n < JOBS_EACH; n++) {                                                                  \
      LEFT a, b;                                                                                                       \
      RIGHT c;                                                                                                         \
      const uint i = is[n] * TILE * S_PITCH + y * T8;                                                                  \
      coopMatLoad(a, pool, i, S_PITCH, BY_ROWS);                                                                       \
      coopMatLoad(b, pool, from + i, S_PITCH, BY_ROWS);                                                                \
      coopMatLoad(c, pool, S_ROWS + js[n] * TILE * S_PITCH + y * T8, S_PITCH, BY_COLUMNS);                             \
      one[n] = coopMatMulAdd(a, c, one[n]);                                                                            \
      other[n] = coopMatMulAdd(b, c, other[n]);                                                                        \
    }

// F, M, the diagonal of Z V'^T, and X. No matrix depends on a condition, for NVIDIA's compiler would keep it in local
// memory. factor: from the block's factor of dO to the sequence's.
void make_pairs(float factor) {
  SUM B[JOBS_EACH], Z[JOBS_EACH], X[JOBS_EACH];
  uint is[JOBS_EACH], js[JOBS_EACH]; // of the subgroup's tiles; several subgroups may have the last
  [[unroll]] for (uint n = 0; n < JOBS_EACH; n++) {
    const uint job = min(n * SUBGROUPS + mine, JOBS - 1);
    is[n] = row_of(job);
    js[n] = job - is[n] * (is[n] + 1) / 2;
    B[n] = Z[n] = X[n] = SUM(0.0);
  }
  fetch_values(0);
  for (uint x = 0; x < DV / SLAB; x++) {
    put_values();
    if (x + 1 < DV / SLAB)
      fetch_values(x + 1);
    else if (GATED != 0)
      fetch_keys(0);
    MULTIPLY_SLABS(B, Z, 2 * S_ROWS)
  }
  SUM KK[JOBS_EACH];
  if (GATED != 0) {
    [[unroll]] for (uint n = 0; n < JOBS_EACH; n++) KK[n] = SUM(0.0);
    for (uint x = 0; x < DK / SLAB; x++) {
      put_keys();
      if (x + 1 < DK / SLAB) fetch_keys(x + 1);
      MULTIPLY_SLABS(X, KK, S_ROWS)
    }
  }
  fetch_values(0); // for columns()
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

// crossing_t = sum_{i>=t, j<t} X_ij. Each column is cut into spans, in which a number becomes its sum with those below
// it. Then each span of a row adds its numbers, and what spans below have in their columns.
void add_rectangles() {
  const uint SPANS = 4, SPAN = BLOCK / SPANS;
  for (uint e = stager; e < BLOCK * SPANS; e += LANES) {
    const uint c = e % BLOCK, first = e / BLOCK * SPAN;
    float sum = 0.0;
    [[unroll]] for (uint n = SPAN; n-- > 0;) {
      const uint r = first + n;
      sum += r > c ? number(r * D_PITCH, c) : 0.0;
      pool[r * D_PITCH + c / 4][c % 4] = floatBitsToUint(sum);
    }
  }
  barrier();
  for (uint e = stager; e < BLOCK * SPANS; e += LANES) {
    const uint r = e % BLOCK, first = e / BLOCK * SPAN;
    float sum = 0.0;
    [[unroll]] for (uint n = 0; n < SPAN; n++) {
      float column = number(r * D_PITCH, first + n);
      for (uint below = r / SPAN + 1; below < SPANS; below++) column += number(below * SPAN * D_PITCH, first + n);
      sum += first + n < r ? column : 0.0;
    }
    at_rows[e] = sum;
  }
  barrier();
  for (uint r = stager; r < BLOCK; r += LANES) {
    float sum = 0.0;
    [[unroll]] for (uint n = 0; n < SPANS; n++) sum += at_rows[n * BLOCK + r];
    crossing[r] = sum;
  }
}
