// cpu_blocks_set.h: the inner loops of cpu_blocks.h. cpu_blocks.c includes this file once for every instruction set,
// with these macros: NAME(x), a name of the set; TARGET, the attribute; WIDE, bytes of its vectors; TILE_ROWS and
// TILE_STRIPS, tokens and strips of a tile; MADD(s, a, b), s + the sums of pairs of products of 16-bit integers;
// FOLD(a, b), eight sums of 32 bits: of elements 2 j and 2 j + 1 modulo 16; EIGHT(p), eight 16-bit integers as floats;
// and those of cpu_blocks_unpack.h.
#define INLINE static inline __attribute__((always_inline)) TARGET

typedef int16_t NAME(words) __attribute__((vector_size(WIDE), aligned(2), may_alias));
typedef int32_t NAME(wide) __attribute__((vector_size(WIDE), aligned(2), may_alias));
typedef float NAME(wide_floats) __attribute__((vector_size(WIDE), aligned(4), may_alias));
enum { NAME(W) = WIDE / 2, NAME(V) = GROUP / NAME(W) }; // elements of a vector, vectors of a group
#define W NAME(W)
#define V NAME(V)

#include "cpu_blocks_unpack.h"

// ---------------------------------------------------------------- float32

// 8 elements, from i of group g on. Half vectors stay in registers of AVX2.
INLINE void NAME(elements)(half_lanes *to, const struct span *c, uint32_t g, uint32_t i, bool less) {
  *to = c->d[g] * EIGHT(c->q + g * GROUP + i);
  if (less) *to -= c->less[g];
}

TARGET static void NAME(widen)(float *out, struct block_row w, uint32_t k, uint32_t n) {
  struct span c;
  const bool less = has_less(w.dtype);
  const uint32_t groups = NAME(unpack_at)(&c, w, k);
  for (uint32_t g = 0; g < groups && g * GROUP < n; g++)
    for (uint32_t i = 0; i < GROUP; i += 8) NAME(elements)((half_lanes *)(out + g * GROUP + i), &c, g, i, less);
}

INLINE void NAME(dots_of)(float *y, const float *x, size_t x_stride, const uint32_t T, struct block_row w,
                          const bool less) {
  struct span c;
  float last[BLOCKS_T][SPAN];
  half_lanes sums[BLOCKS_T][2] = {{{0}}};
  for (uint32_t k = 0; k < w.K; k += SPAN) {
    const uint32_t groups = NAME(unpack_at)(&c, w, k), n = w.K - k;
    const float *from = x + k;
    size_t stride = x_stride;
    if (n < groups * GROUP) { // zeros after the last column
      for (uint32_t t = 0; t < T; t++) {
        memset(last[t], 0, sizeof last[t]);
        memcpy(last[t], from + t * stride, n * sizeof(float));
      }
      from = last[0], stride = SPAN;
    }
    for (uint32_t g = 0; g < groups; g++)
      for (uint32_t i = 0; i < GROUP; i += 8) {
        half_lanes e;
        NAME(elements)(&e, &c, g, i, less);
        for (uint32_t t = 0; t < T; t++)
          sums[t][i / 8 % 2] += e * *(const half_lanes *)(from + t * stride + g * GROUP + i);
      }
  }
  for (uint32_t t = 0; t < T; t++) y[t] = lanes_sum((const lanes *)sums[t]);
}

TARGET static void NAME(dots)(float *y, const float *x, size_t x_stride, uint32_t T, struct block_row w) {
  const bool less = has_less(w.dtype);
  if (T == 1 && less)
    NAME(dots_of)(y, x, x_stride, 1, w, true);
  else if (T == 1)
    NAME(dots_of)(y, x, x_stride, 1, w, false);
  else
    NAME(dots_of)(y, x, x_stride, T, w, less);
}

// ---------------------------------------------------------------- rounded inputs

// Adding 1.5 2^23 leaves the integer in the low bits, rounded to nearest even.
TARGET static void NAME(round)(struct rounded *to, const float *x, uint32_t K, enum dtype dtype) {
  const uint32_t reach = groups_of(dtype);
  for (uint32_t k = 0; k < K; k += SPAN, to++) {
    float from[SPAN] = {0};
    memcpy(from, x + k, (K - k < SPAN ? K - k : SPAN) * sizeof(float));
    for (uint32_t g = 0; g < GROUPS; g += reach) {
      const float *const v = from + g * GROUP;
      uint32_t bits[SPAN], most = 0;
      memcpy(bits, v, reach * GROUP * sizeof *bits);
      for (uint32_t i = 0; i < reach * GROUP; i++) most = most > (bits[i] & INT32_MAX) ? most : bits[i] & INT32_MAX;
      const float largest = float_of(most), scale = largest / (float)most_rounded(dtype);
      const float inverse = largest > 1e-30f ? (float)most_rounded(dtype) / largest : 0;
      for (uint32_t i = 0; i < reach * GROUP; i++)
        to->q[g * GROUP + i] = (int16_t)(bits_of(v[i] * inverse + 0x1.8p23f) - bits_of(0x1.8p23f));
      for (uint32_t j = g; j < g + reach; j++) {
        int32_t sum = 0;
        for (uint32_t i = 0; i < GROUP; i++) sum += to->q[j * GROUP + i];
        to->d[j] = scale;
        to->sums[j] = scale * (float)sum;
      }
    }
  }
}

// sums[j] += factor times the sum of a b over 2 j and 2 j + 1 modulo 16.
INLINE void NAME(integer_dot)(half_lanes *sums, const int16_t *a, const int16_t *b, const uint32_t n, float factor) {
  NAME(wide) s[2] = {{0}};
  for (uint32_t i = 0; i < n; i += GROUP)
#pragma GCC unroll 4
    for (uint32_t j = 0; j < V; j++)
      s[j % 2] = MADD(s[j % 2], *(const NAME(wide) *)(a + i + j * W), *(const NAME(wide) *)(b + i + j * W));
  *sums += __builtin_convertvector(FOLD(s[0], s[1]), half_lanes) * factor;
}

// The sum of the eight partial sums.
INLINE float NAME(sum_of)(const half_lanes *sums) {
  const quarter_lanes *half = (const quarter_lanes *)sums, four = half[0] + half[1];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// Fetches bytes that are read later; they may be past the end of the weights.
INLINE void NAME(fetch)(uintptr_t from, const uint32_t bytes) {
#pragma GCC unroll 4
  for (uint32_t line = 0; line < bytes; line += 64) __builtin_prefetch((const void *)(from + line));
}

// One token and one row: the weights go from their bytes into products, without a span.
INLINE float NAME(dot_of)(const struct rounded *x, struct block_row w, const enum dtype dtype) {
  const uint32_t reach = groups_of(dtype);
  const uint8_t *b = w.blocks;
  half_lanes sums = {0};
  for (uint32_t k = 0; k < w.K; k += reach * GROUP, b += bytes_of(dtype)) {
    const struct rounded *span = x + k / SPAN;
    const uint32_t g = k % SPAN / GROUP;
    NAME(wide) s[2] = {{0}};
    struct NAME(head) h;
    NAME(head_of)(&h, b, dtype);
    NAME(fetch)((uintptr_t)b + AHEAD, bytes_of(dtype));
#pragma GCC unroll 4
    for (uint32_t part = 0; part < NAME(parts_of)(dtype); part++) {
      const int16_t *from = span->q + g * GROUP + NAME(first_of)(part, dtype);
      NAME(words) q[V > 2 ? 2 * V : 4];
      NAME(part_of)(q, b, &h, part, dtype);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < NAME(vectors_of)(dtype); i++) {
        const uint32_t sum = (W < 16 && dtype == DTYPE_Q6_K ? part : i) % 2;
        s[sum] = MADD(s[sum], (NAME(wide))q[i], *(const NAME(wide) *)(from + i * NAME(step_of)(dtype)));
      }
    }
    sums += __builtin_convertvector(FOLD(s[0], s[1]), half_lanes) * (h.d * span->d[g]);
    if (has_less(dtype)) sums -= h.less * *(const half_lanes *)span->sums;
  }
  return NAME(sum_of)(&sums);
}

#define FORMAT(name, dtype)                                                                                            \
  TARGET static void NAME(row_dots_##name)(float *y, const struct rounded *x, struct block_row w, uint32_t rows) {     \
    for (uint32_t r = 0; r < rows; r++, w.blocks += w.stride) y[r] = NAME(dot_of)(x, w, dtype);                        \
  }
EVERY_FORMAT(FORMAT)
#undef FORMAT

static void (*const NAME(row_dots)[])(float *y, const struct rounded *x, struct block_row w, uint32_t rows) = {
#define FORMAT(name, dtype) NAME(row_dots_##name),
    EVERY_FORMAT(FORMAT)
#undef FORMAT
};

INLINE void NAME(rounded_dots_of)(float *y, const struct rounded *x, size_t x_stride, const uint32_t T,
                                  struct block_row w, const bool small, const bool less) {
  struct span c;
  half_lanes sums[BLOCKS_T] = {{0}};
  for (uint32_t k = 0; k < w.K; k += SPAN, x++) {
    const uint32_t groups = NAME(unpack_at)(&c, w, k);
    for (uint32_t t = 0; t < T; t++) {
      const struct rounded *from = x + t * x_stride;
      if (small)
        for (uint32_t g = 0; g < groups; g++)
          NAME(integer_dot)(&sums[t], c.q + g * GROUP, from->q + g * GROUP, GROUP, c.d[g] * from->d[g]);
      else
        NAME(integer_dot)(&sums[t], c.q, from->q, SPAN, c.d[0] * from->d[0]);
      if (less) sums[t] -= *(const half_lanes *)c.less * *(const half_lanes *)from->sums;
    }
  }
  for (uint32_t t = 0; t < T; t++) y[t] = NAME(sum_of)(&sums[t]);
}

TARGET static void NAME(rounded_dots)(float *y, const struct rounded *x, size_t x_stride, uint32_t T,
                                      struct block_row w) {
  const bool small = groups_of(w.dtype) == 1, less = has_less(w.dtype);
  if (small)
    NAME(rounded_dots_of)(y, x, x_stride, T, w, true, false);
  else
    NAME(rounded_dots_of)(y, x, x_stride, T, w, false, less);
}

TARGET static void NAME(rounded_rows)(float *y, const struct rounded *x, struct block_row w, uint32_t rows) {
  NAME(row_dots)[w.dtype - DTYPE_BLOCKS](y, x, w, rows);
}

TARGET static void NAME(pack)(struct strip *to, struct block_row w, uint32_t k) {
  struct span c[4];
  const bool less = has_less(w.dtype);
  for (uint32_t first = 0; first < LANES; first += 4) {
    for (uint32_t r = first; r < first + 4; r++) {
      struct span *row = &c[r - first];
      uint32_t groups = 0;
      if (r < w.rows) {
        struct block_row one = w;
        one.blocks += r * w.stride;
        groups = NAME(unpack_at)(row, one, k);
        NAME(fetch)((uintptr_t)one.blocks + dtype_bytes(w.dtype, k + SPAN), (uint32_t)dtype_bytes(w.dtype, SPAN));
      }
      memset(row->q + groups * GROUP, 0, (GROUPS - groups) * GROUP * sizeof *row->q);
      for (uint32_t g = 0; g < GROUPS; g++) {
        to->d[g][r] = g < groups ? row->d[g] : 0;
        to->less[g][r] = g < groups && less ? row->less[g] : 0;
      }
    }
    for (uint32_t pair = 0; pair < SPAN / 2; pair += 4) // a pair moves like a float
      transpose_4x4((float *)to->q[pair][first], LANES, (const float *)c[0].q + pair, sizeof *c / sizeof(float));
  }
}

// sums (TILE_ROWS, TILE_STRIPS * LANES) -= what the minima take away.
INLINE void NAME(take_less)(float *sums, size_t stride, const struct rounded *x, size_t x_stride,
                            const struct strip *strips, uint32_t groups) {
  enum { R = TILE_ROWS, L = WIDE / 4, OF_STRIP = LANES / L, N = TILE_STRIPS * OF_STRIP };
  NAME(wide_floats) s[R][N];
#pragma GCC unroll 8
  for (uint32_t i = 0; i < R; i++)
#pragma GCC unroll 8
    for (uint32_t j = 0; j < N; j++) s[i][j] = *(NAME(wide_floats) *)(sums + i * stride + j * L);
  for (uint32_t g = 0; g < groups; g++)
#pragma GCC unroll 8
    for (uint32_t i = 0; i < R; i++)
#pragma GCC unroll 8
      for (uint32_t j = 0; j < N; j++)
        s[i][j] -=
            x[i * x_stride].sums[g] * *(const NAME(wide_floats) *)&strips[j / OF_STRIP].less[g][j % OF_STRIP * L];
#pragma GCC unroll 8
  for (uint32_t i = 0; i < R; i++)
#pragma GCC unroll 8
    for (uint32_t j = 0; j < N; j++) *(NAME(wide_floats) *)(sums + i * stride + j * L) = s[i][j];
}

// sums (TILE_ROWS, TILE_STRIPS * LANES) += x strips, in registers. L: lanes of a vector; N: vectors of a row.
INLINE void NAME(tile)(float *sums, size_t stride, const struct rounded *x, size_t x_stride, const struct strip *strips,
                       uint32_t groups, const uint32_t reach, const bool less) {
  enum { R = TILE_ROWS, L = WIDE / 4, OF_STRIP = LANES / L, N = TILE_STRIPS * OF_STRIP };
  if (less) NAME(take_less)(sums, stride, x, x_stride, strips, groups);
  for (uint32_t g = 0; g < groups; g += reach) {
    NAME(wide) s[R][N] = {{{0}}};
    const uint32_t end = (g + reach < groups ? g + reach : groups) * (GROUP / 2);
    for (uint32_t pair = g * (GROUP / 2); pair < end; pair++) {
      NAME(wide) b[N];
#pragma GCC unroll 8
      for (uint32_t j = 0; j < N; j++) b[j] = *(const NAME(wide) *)strips[j / OF_STRIP].q[pair][j % OF_STRIP * L];
#pragma GCC unroll 8
      for (uint32_t i = 0; i < R; i++) {
        int32_t two;
        memcpy(&two, x[i * x_stride].q + 2 * pair, sizeof two);
        const NAME(wide) a = two - (NAME(wide)){0};
#pragma GCC unroll 8
        for (uint32_t j = 0; j < N; j++) s[i][j] = MADD(s[i][j], a, b[j]);
      }
    }
#pragma GCC unroll 8
    for (uint32_t i = 0; i < R; i++)
#pragma GCC unroll 8
      for (uint32_t j = 0; j < N; j++)
        *(NAME(wide_floats) *)(sums + i * stride + j * L) +=
            __builtin_convertvector(s[i][j], NAME(wide_floats)) * x[i * x_stride].d[g] *
            *(const NAME(wide_floats) *)&strips[j / OF_STRIP].d[g][j % OF_STRIP * L];
  }
}

TARGET static void NAME(tiles)(float *sums, size_t stride, const struct rounded *x, size_t x_stride, uint32_t T,
                               const struct strip *strips, uint32_t groups, enum dtype dtype) {
  const bool small = groups_of(dtype) == 1, less = has_less(dtype);
  for (uint32_t t = 0; t < T; t += TILE_ROWS, sums += TILE_ROWS * stride, x += TILE_ROWS * x_stride)
    if (small)
      NAME(tile)(sums, stride, x, x_stride, strips, groups, 1, false);
    else if (less)
      NAME(tile)(sums, stride, x, x_stride, strips, groups, GROUPS, true);
    else
      NAME(tile)(sums, stride, x, x_stride, strips, groups, GROUPS, false);
}

static const struct block_kernels NAME(block_kernels) = {
    .widen = NAME(widen),
    .dots = NAME(dots),
    .rounded_dots = NAME(rounded_dots),
    .rounded_rows = NAME(rounded_rows),
    .round = NAME(round),
    .pack = NAME(pack),
    .strips = TILE_STRIPS,
    .tiles = NAME(tiles),
};

#undef INLINE
#undef NAME
#undef TARGET
#undef W
#undef V
#undef WIDE
#undef TILE_ROWS
#undef TILE_STRIPS
#undef MADD
#undef HALF
#undef FOLD
#undef SCALES
#undef SIXTEEN
#undef SIGNED_SIXTEEN
#undef EIGHT
#undef CHOOSE
#undef BYTES
#undef SIGNED_BYTES
