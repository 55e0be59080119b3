// cpu_blocks_set.h: the inner loops of cpu_blocks.h. cpu_blocks.c includes this file once for every instruction set,
// with these macros: NAME(x), a name of the set; TARGET, the attribute; WIDE and NARROW, bytes of the vectors in tiles
// and dots (NARROW at most 32); MADD_WIDE(s, a, b) and MADD_NARROW, s + the sums of pairs of products of 16-bit
// integers; HALF(bits), an f16 as float; CHOOSE(to, table, i), to = the elements i (0 to 15) of 16 bytes.
#define INLINE static inline __attribute__((always_inline)) TARGET

// ---------------------------------------------------------------- unpacking

INLINE float NAME(half_at)(const uint8_t *bytes) {
  uint16_t h;
  memcpy(&h, bytes, 2);
  return HALF(h);
}

TARGET static void NAME(unpack_q8_0)(struct span *to, const uint8_t *b, uint32_t groups) {
  for (uint32_t g = 0; g < groups; g++, b += 34) {
    const int8_t *from = (const int8_t *)b + 2;
    to->d[g] = NAME(half_at)(b);
    for (int i = 0; i < 32; i++) to->q[g * 32 + i] = from[i];
  }
}

// Elements 0 ... 15 of a group are the low halves of 16 bytes, elements 16 ... 31 the high ones.
INLINE void NAME(unpack_halves)(int16_t *q, const uint8_t *b) {
  const lanes_s16 both = __builtin_convertvector(*(const bytes_16 *)b, lanes_s16);
  *(lanes_s16 *)q = both & 15;
  *(lanes_s16 *)(q + 16) = both >> 4;
}

TARGET static void NAME(unpack_q4_0)(struct span *to, const uint8_t *b, uint32_t groups) {
  for (uint32_t g = 0; g < groups; g++, b += 18) {
    int16_t *q = to->q + g * 32;
    to->d[g] = NAME(half_at)(b);
    NAME(unpack_halves)(q, b + 2);
    for (int i = 0; i < 32; i += 16) *(lanes_s16 *)(q + i) -= 8;
  }
}

TARGET static void NAME(unpack_q5_0)(struct span *to, const uint8_t *b, uint32_t groups) {
  const lanes_s16 bit = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, INT16_MIN};
  for (uint32_t g = 0; g < groups; g++, b += 22) {
    int16_t *q = to->q + g * 32, fifth[2];
    memcpy(fifth, b + 2, 4);
    to->d[g] = NAME(half_at)(b);
    NAME(unpack_halves)(q, b + 6);
    for (int i = 0; i < 2; i++) // a missing bit takes 16 away
      *(lanes_s16 *)(q + 16 * i) -= (lanes_s16)((bit & fifth[i]) == 0) & 16;
  }
}

// The eight scales and minima of 12 bytes, as bytes of two words each (format.c has the layout).
INLINE void NAME(unpack_k)(struct span *to, const uint8_t *b, bool five) {
  const float d = NAME(half_at)(b), d_minimum = NAME(half_at)(b + 2);
  const uint8_t *fifth = b + 16, *halves = five ? b + 48 : b + 16;
  uint32_t s[3];
  uint8_t scales[8], minima[8];
  memcpy(s, b + 4, sizeof s);
  const uint32_t words[4] = {s[0] & 0x3f3f3f3f, (s[2] & 0x0f0f0f0f) | (s[0] >> 2 & 0x30303030), s[1] & 0x3f3f3f3f,
                             (s[2] >> 4 & 0x0f0f0f0f) | (s[1] >> 2 & 0x30303030)};
  memcpy(scales, words, 8);
  memcpy(minima, words + 2, 8);
  for (int g = 0; g < GROUPS; g++) {
    to->d[g] = d;
    to->less[g] = d_minimum * (float)minima[g];
  }
  for (int j = 0; j < 4; j++, halves += 32) {
    int16_t *q = to->q + j * 64;
    const uint16_t low = scales[2 * j], high = scales[2 * j + 1];
    if (five) {
      for (int i = 0; i < 32; i++)
        q[i] = (int16_t)((uint16_t)((halves[i] & 15) | (fifth[i] >> (2 * j) & 1) << 4) * low);
      for (int i = 0; i < 32; i++)
        q[32 + i] = (int16_t)((uint16_t)(halves[i] >> 4 | (fifth[i] >> (2 * j + 1) & 1) << 4) * high);
    } else {
      for (int i = 0; i < 32; i++) q[i] = (int16_t)((uint16_t)(halves[i] & 15) * low);
      for (int i = 0; i < 32; i++) q[32 + i] = (int16_t)((uint16_t)(halves[i] >> 4) * high);
    }
  }
}

TARGET static void NAME(unpack_q4_k)(struct span *to, const uint8_t *b, uint32_t groups) {
  (void)groups;
  NAME(unpack_k)(to, b, false);
}

TARGET static void NAME(unpack_q5_k)(struct span *to, const uint8_t *b, uint32_t groups) {
  (void)groups;
  NAME(unpack_k)(to, b, true);
}

// 32 columns further the next pair of high bits is used; 64 columns further the high halves of the same bytes.
TARGET static void NAME(unpack_q6_k)(struct span *to, const uint8_t *b, uint32_t groups) {
  const float d = NAME(half_at)(b + 208);
  (void)groups;
  for (int g = 0; g < GROUPS; g++) to->d[g] = d;
  for (int part = 0; part < 4; part++) {
    const int half = part / 2, begin = part % 2 * 16;
    const uint8_t *at = b + half * 64 + begin;
    const int8_t *scales = (const int8_t *)b + 192 + half * 8 + part % 2;
    const lanes_s16 low = __builtin_convertvector(*(const bytes_16 *)at, lanes_s16);
    const lanes_s16 next = __builtin_convertvector(*(const bytes_16 *)(at + 32), lanes_s16);
    const lanes_s16 high = __builtin_convertvector(*(const bytes_16 *)(b + 128 + half * 32 + begin), lanes_s16);
    lanes_s16 *q = (lanes_s16 *)(to->q + half * 128 + begin);
    q[0] = (((low & 15) | (high << 4 & 48)) - 32) * scales[0];
    q[2] = (((next & 15) | (high << 2 & 48)) - 32) * scales[2];
    q[4] = ((low >> 4 | (high & 48)) - 32) * scales[4];
    q[6] = ((next >> 4 | (high >> 2 & 48)) - 32) * scales[6];
  }
}

// 16 bytes: their low halves choose elements 0 ... 15 of a group, the high ones 16 ... 31.
INLINE void NAME(unpack_iq4)(int16_t *q, const uint8_t *b, int16_t scale) {
  const signed_16 table = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  const bytes_16 halves = *(const bytes_16 *)b;
  signed_16 low, high;
  CHOOSE(low, table, halves & 15);
  CHOOSE(high, table, halves >> 4);
  *(lanes_s16 *)q = __builtin_convertvector(low, lanes_s16) * scale;
  *(lanes_s16 *)(q + 16) = __builtin_convertvector(high, lanes_s16) * scale;
}

TARGET static void NAME(unpack_iq4_nl)(struct span *to, const uint8_t *b, uint32_t groups) {
  for (uint32_t g = 0; g < groups; g++, b += 18) {
    to->d[g] = NAME(half_at)(b);
    NAME(unpack_iq4)(to->q + g * 32, b + 2, 1);
  }
}

TARGET static void NAME(unpack_iq4_xs)(struct span *to, const uint8_t *b, uint32_t groups) {
  const float d = NAME(half_at)(b);
  const uint32_t pairs = b[2] | (uint32_t)b[3] << 8;
  (void)groups;
  for (int g = 0; g < GROUPS; g++) {
    const uint32_t scale = (b[4 + g / 2] >> (g % 2 * 4) & 15u) | (pairs >> (2 * g) & 3) << 4;
    to->d[g] = d;
    NAME(unpack_iq4)(to->q + g * 32, b + 8 + 16 * g, (int16_t)((int16_t)scale - 32));
  }
}

static void (*const NAME(unpack)[])(struct span *to, const uint8_t *blocks, uint32_t groups) = {
    NAME(unpack_q8_0), NAME(unpack_q4_0), NAME(unpack_q5_0),   NAME(unpack_q4_k),
    NAME(unpack_q5_k), NAME(unpack_q6_k), NAME(unpack_iq4_nl), NAME(unpack_iq4_xs),
};

// Columns k ... of a row. Returns the number of groups.
INLINE uint32_t NAME(unpack_at)(struct span *to, struct block_row w, uint32_t k) {
  const uint32_t groups = groups_from(w.K, k);
  NAME(unpack)[w.dtype - DTYPE_BLOCKS](to, w.blocks + dtype_bytes(w.dtype, k), groups);
  return groups;
}

// ---------------------------------------------------------------- float32

// 8 elements, from i of group g on. Half vectors stay in registers of AVX2.
INLINE void NAME(elements)(half_lanes *to, const struct span *c, uint32_t g, uint32_t i, bool less) {
  *to = c->d[g] * __builtin_convertvector(*(const half_lanes_s16 *)(c->q + g * GROUP + i), half_lanes);
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
  const uint32_t reach = groups_of_scale(dtype);
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

typedef int32_t NAME(narrow) __attribute__((vector_size(NARROW), aligned(2), may_alias));
typedef int32_t NAME(wide) __attribute__((vector_size(WIDE), aligned(2), may_alias));
typedef float NAME(wide_floats) __attribute__((vector_size(WIDE), aligned(4), may_alias));

// sums[j] += factor times the sum of a b over 2 j and 2 j + 1 modulo 16.
INLINE void NAME(integer_dot)(half_lanes *sums, const int16_t *a, const int16_t *b, const uint32_t n, float factor) {
  enum { PARTS = 32 / NARROW };
  NAME(narrow) s[PARTS] = {{0}};
  half_lanes_s32 all;
  for (uint32_t i = 0; i < n; i += 16)
#pragma GCC unroll 2
    for (uint32_t j = 0; j < PARTS; j++)
      s[j] = MADD_NARROW(s[j], *(const NAME(narrow) *)(a + i + j * (NARROW / 2)),
                         *(const NAME(narrow) *)(b + i + j * (NARROW / 2)));
  memcpy(&all, s, sizeof all);
  *sums += __builtin_convertvector(all, half_lanes) * factor;
}

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
  for (uint32_t t = 0; t < T; t++) {
    const quarter_lanes *half = (const quarter_lanes *)&sums[t], four = half[0] + half[1];
    y[t] = (four[0] + four[2]) + (four[1] + four[3]);
  }
}

TARGET static void NAME(rounded_dots)(float *y, const struct rounded *x, size_t x_stride, uint32_t T,
                                      struct block_row w) {
  const bool small = groups_of_scale(w.dtype) == 1, less = has_less(w.dtype);
  if (T == 1 && small)
    NAME(rounded_dots_of)(y, x, x_stride, 1, w, true, false);
  else if (T == 1)
    NAME(rounded_dots_of)(y, x, x_stride, 1, w, false, less);
  else if (small)
    NAME(rounded_dots_of)(y, x, x_stride, T, w, true, false);
  else
    NAME(rounded_dots_of)(y, x, x_stride, T, w, false, less);
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

INLINE void NAME(tile)(float *sums, size_t stride, const struct rounded *x, size_t x_stride, const struct strip *strip,
                       uint32_t groups, const uint32_t reach, const bool less) {
  enum { R = TILE_ROWS, V = LANES * 4 / WIDE, W = WIDE / 4 };
  for (uint32_t g = 0; g < groups; g += reach) {
    NAME(wide) s[R][V] = {{{0}}};
    const uint32_t end = (g + reach < groups ? g + reach : groups) * (GROUP / 2);
    for (uint32_t pair = g * (GROUP / 2); pair < end; pair++) {
      NAME(wide) b[V];
#pragma GCC unroll 8
      for (uint32_t j = 0; j < V; j++) b[j] = *(const NAME(wide) *)strip->q[pair][j * W];
#pragma GCC unroll 8
      for (uint32_t i = 0; i < R; i++) {
        int32_t two;
        memcpy(&two, x[i * x_stride].q + 2 * pair, sizeof two);
        const NAME(wide) a = two - (NAME(wide)){0};
#pragma GCC unroll 8
        for (uint32_t j = 0; j < V; j++) s[i][j] = MADD_WIDE(s[i][j], a, b[j]);
      }
    }
#pragma GCC unroll 8
    for (uint32_t i = 0; i < R; i++)
#pragma GCC unroll 8
      for (uint32_t j = 0; j < V; j++)
        *(NAME(wide_floats) *)(sums + i * stride + j * W) += __builtin_convertvector(s[i][j], NAME(wide_floats)) *
                                                             x[i * x_stride].d[g] *
                                                             *(const NAME(wide_floats) *)&strip->d[g][j * W];
  }
  for (uint32_t i = 0; less && i < R; i++)
    for (uint32_t j = 0; j < V; j++) {
      NAME(wide_floats) sum = *(NAME(wide_floats) *)(sums + i * stride + j * W);
      for (uint32_t g = 0; g < groups; g++)
        sum -= x[i * x_stride].sums[g] * *(const NAME(wide_floats) *)&strip->less[g][j * W];
      *(NAME(wide_floats) *)(sums + i * stride + j * W) = sum;
    }
}

TARGET static void NAME(tiles)(float *sums, size_t stride, const struct rounded *x, size_t x_stride, uint32_t T,
                               const struct strip *strip, uint32_t groups, enum dtype dtype) {
  const bool small = groups_of_scale(dtype) == 1, less = has_less(dtype);
  for (uint32_t t = 0; t < T; t += TILE_ROWS, sums += TILE_ROWS * stride, x += TILE_ROWS * x_stride)
    if (small)
      NAME(tile)(sums, stride, x, x_stride, strip, groups, 1, false);
    else
      NAME(tile)(sums, stride, x, x_stride, strip, groups, GROUPS, less);
}

static const struct block_kernels NAME(block_kernels) = {
    .widen = NAME(widen),
    .dots = NAME(dots),
    .rounded_dots = NAME(rounded_dots),
    .round = NAME(round),
    .pack = NAME(pack),
    .tiles = NAME(tiles),
};

#undef INLINE
#undef NAME
#undef TARGET
#undef WIDE
#undef NARROW
#undef TILE_ROWS
#undef MADD_WIDE
#undef MADD_NARROW
#undef HALF
#undef CHOOSE
