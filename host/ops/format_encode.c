// format_encode: see format_encode.h. format.c describes the blocks.
// A block stores numbers as scale * g, where g is on a grid: some whole numbers, or a table. For a scale, the best g
// are the nearest ones. For given g, the best scale is sum(x g) / sum(g^2). The search starts from scales that put the
// largest number near either end of the grid, takes the g of each, then the best scale of these g, and keeps the scale
// of the least error. Formats with a scale a group round those to whole numbers times the scale of the block; the
// neighbours of a rounded scale are tried too.
#include "format_encode.h"

#include <math.h>
#include <string.h>

// The values that a quantized number can have: least, least + 1, ... most; or those of a table in ascending order.
struct grid {
  float least, most;
  const float *table; // GRID_TABLE of them; NULL: whole numbers
  float step;         // between the ends that the search tries
};
enum { GRID_TABLE = 16, GROUP_MOST = 32, BLOCK = 256, TRIES = 6 };

static const float iq4[GRID_TABLE] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const struct grid grid_4 = {-8, 7, NULL, 0.15f}, grid_5 = {-16, 15, NULL, 0.15f},
                         grid_6 = {-32, 31, NULL, 0.15f}, grid_8 = {-127, 127, NULL, 0.15f},
                         grid_iq4 = {-127, 113, iq4, 2}, grid_4_up = {0, 15, NULL, 0.15f},
                         grid_5_up = {0, 31, NULL, 0.15f};

static float f16(float x) { return f16_to_f32(f32_to_f16(x)); }

// A block's scale as it is stored: 0 only if it is 0.
static float block_scale(float x) { return f16(x) == 0 && x != 0 ? copysignf(0x1p-24f, x) : f16(x); }

// The nearest whole number, for |x| < 2^22.
static inline float whole(float x) { return x + 0x1.8p23f - 0x1.8p23f; }

static inline int table_index(const float *table, float v) {
  int index = 0;
  for (int i = 1; i < GRID_TABLE; i++) index += v > (table[i - 1] + table[i]) / 2;
  return index;
}

static inline float nearest(const struct grid *g, float v) {
  if (g->table) return g->table[table_index(g->table, v)];
  v = v > g->least ? v : g->least;
  return whole(v < g->most ? v : g->most);
}

static int index_of(const struct grid *g, float v) {
  return g->table ? table_index(g->table, v) : (int)(nearest(g, v) - g->least);
}

static float inverse(float scale) { return scale ? 1 / scale : 0; }

// The sum of squares of x + less - scale * g, each g the nearest.
static float error_of(const struct grid *g, const float *x, int n, float scale, float less) {
  const float factor = inverse(scale);
  float sum = 0;
  for (int i = 0; i < n; i++) {
    const float d = x[i] + less - scale * nearest(g, (x[i] + less) * factor);
    sum += d * d;
  }
  return sum;
}

// ---------------------------------------------------------------- one scale

static float same(float x) { return x; }

// The best scale for the grid points that `start` gives.
static float refit(const struct grid *g, const float *x, int n, float start) {
  const float factor = inverse(start);
  float xg = 0, gg = 0;
  for (int i = 0; i < n; i++) {
    const float q = nearest(g, x[i] * factor);
    xg += x[i] * q;
    gg += q * q;
  }
  return gg > 0 ? xg / gg : 0;
}

// round: how scales are stored.
static float find_scale(const struct grid *g, const float *x, int n, float (*round)(float)) {
  float largest = 0;
  for (int i = 0; i < n; i++)
    if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
  if (largest == 0) return 0;
  float best = round(largest / g->least), least = error_of(g, x, n, best, 0);
  for (int k = -TRIES; k <= TRIES; k++)
    for (int end = 0; end < 2; end++) {
      const float scale = round(refit(g, x, n, largest / ((end ? g->most : g->least) + (float)k * g->step)));
      const float error = error_of(g, x, n, scale, 0);
      if (error >= least) continue;
      best = scale;
      least = error;
    }
  return best;
}

static void put_f16(uint8_t *to, float x) {
  const uint16_t h = f32_to_f16(x);
  memcpy(to, &h, 2);
}

static void indices(const struct grid *g, const float *x, int n, float scale, uint8_t *out) {
  const float factor = inverse(scale);
  for (int i = 0; i < n; i++) out[i] = (uint8_t)index_of(g, x[i] * factor);
}

static void halves(const uint8_t q[32], uint8_t out[16]) {
  for (int i = 0; i < 16; i++) out[i] = (uint8_t)((q[i] & 15) | q[16 + i] << 4);
}

static void encode_q8_0(const float *x, uint8_t *b) {
  const float scale = find_scale(&grid_8, x, 32, f16), factor = inverse(scale);
  put_f16(b, scale);
  for (int i = 0; i < 32; i++) b[2 + i] = (uint8_t)(int8_t)nearest(&grid_8, x[i] * factor);
}

static void encode_four(const struct grid *g, const float *x, uint8_t *b) {
  uint8_t q[32];
  const float scale = find_scale(g, x, 32, f16);
  put_f16(b, scale);
  indices(g, x, 32, scale, q);
  halves(q, b + 2);
}

static void encode_q4_0(const float *x, uint8_t *b) { encode_four(&grid_4, x, b); }
static void encode_iq4_nl(const float *x, uint8_t *b) { encode_four(&grid_iq4, x, b); }

static void encode_q5_0(const float *x, uint8_t *b) {
  uint8_t q[32];
  uint32_t fifth = 0;
  const float scale = find_scale(&grid_5, x, 32, f16);
  indices(&grid_5, x, 32, scale, q);
  for (uint32_t i = 0; i < 32; i++) fifth |= (uint32_t)(q[i] >> 4) << i;
  put_f16(b, scale);
  memcpy(b + 2, &fifth, 4);
  halves(q, b + 6);
}

// ---------------------------------------------------------------- a scale a group

struct scaled {
  float d;          // of the block
  float scales[16]; // whole numbers
};

static float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

// The scale of each group as a whole number from low to high, for the block's d.
static float round_scales(const struct grid *g, const float *x, int group, const float *wanted, struct scaled *s,
                          float low, float high) {
  float error = 0;
  for (int j = 0; j < BLOCK / group; j++) {
    const float middle = s->d ? whole(clamp(wanted[j] / s->d, low, high)) : 0;
    float least = INFINITY;
    for (float q = clamp(middle - 1, low, high); q <= clamp(middle + 1, low, high); q++) {
      const float here = error_of(g, x + j * group, group, s->d * q, 0);
      if (here >= least) continue;
      least = here;
      s->scales[j] = q;
    }
    error += least;
  }
  return error;
}

// The best d for the groups' scales and the grid points that these give.
static float refit_block(const struct grid *g, const float *x, int group, const struct scaled *s) {
  float xg = 0, gg = 0;
  for (int j = 0; j < BLOCK / group; j++) {
    const float factor = inverse(s->d * s->scales[j]);
    for (int i = 0; i < group; i++) {
      const float v = x[j * group + i], q = s->scales[j] * nearest(g, v * factor);
      xg += v * q;
      gg += q * q;
    }
  }
  return gg > 0 ? xg / gg : 0;
}

static struct scaled find_scales(const struct grid *g, const float *x, int group, float low, float high) {
  float wanted[16], largest = 0;
  for (int j = 0; j < BLOCK / group; j++) {
    wanted[j] = find_scale(g, x + j * group, group, same);
    if (fabsf(wanted[j]) > fabsf(largest)) largest = wanted[j];
  }
  struct scaled best = {.d = block_scale(largest / low)};
  float least = round_scales(g, x, group, wanted, &best, low, high);
  for (int k = 0; k < 2; k++) {
    struct scaled s = {.d = f16(refit_block(g, x, group, &best))};
    const float error = round_scales(g, x, group, wanted, &s, low, high);
    if (error >= least) break;
    best = s;
    least = error;
  }
  return best;
}

static void encode_q6_k(const float *x, uint8_t *b) {
  const struct scaled s = find_scales(&grid_6, x, 16, -128, 127);
  memset(b, 0, 192);
  put_f16(b + 208, s.d);
  for (int group = 0; group < 16; group++, x += 16) {
    const int half = group / 8, r = group / 2 % 4, begin = group % 2 * 16;
    uint8_t q[16], *low = b + half * 64 + r % 2 * 32 + begin, *high = b + 128 + half * 32 + begin;
    b[192 + group] = (uint8_t)(int8_t)s.scales[group];
    indices(&grid_6, x, 16, s.d * s.scales[group], q);
    for (int i = 0; i < 16; i++) {
      low[i] |= (uint8_t)((q[i] & 15) << (r / 2 * 4));
      high[i] |= (uint8_t)((q[i] >> 4) << (2 * r));
    }
  }
}

static void encode_iq4_xs(const float *x, uint8_t *b) {
  const struct scaled s = find_scales(&grid_iq4, x, 32, -32, 31);
  uint32_t pairs = 0;
  memset(b, 0, 8);
  put_f16(b, s.d);
  for (int j = 0; j < 8; j++, x += 32) {
    const uint32_t scale = (uint32_t)(s.scales[j] + 32);
    uint8_t q[32];
    b[4 + j / 2] |= (uint8_t)((scale & 15) << (j % 2 * 4));
    pairs |= (scale >> 4) << (2 * j);
    indices(&grid_iq4, x, 32, s.d * s.scales[j], q);
    halves(q, b + 8 + 16 * j);
  }
  b[2] = (uint8_t)pairs;
  b[3] = (uint8_t)(pairs >> 8);
}

// ---------------------------------------------------------------- a scale and a minimum a group (Q4_K, Q5_K)

enum { GROUPS = 8 };

// x is about scale * q - less, less >= 0.
struct line {
  float scale, less;
};

// The best line for the grid points that `start` gives.
static struct line refit_line(const struct grid *g, const float *x, struct line start) {
  const float factor = inverse(start.scale), n = GROUP_MOST;
  float sx = 0, sq = 0, sxq = 0, sqq = 0;
  for (int i = 0; i < GROUP_MOST; i++) {
    const float q = nearest(g, (x[i] + start.less) * factor);
    sx += x[i];
    sq += q;
    sxq += x[i] * q;
    sqq += q * q;
  }
  const float area = n * sqq - sq * sq;
  struct line fit = {area > 0 ? (n * sxq - sx * sq) / area : 0, 0};
  fit.less = (fit.scale * sq - sx) / n;
  if (fit.less < 0 || fit.scale <= 0) fit = (struct line){sqq > 0 ? sxq / sqq : 0, 0};
  return fit;
}

static struct line find_line(const struct grid *g, const float *x) {
  float low = 0, high = 0;
  for (int i = 0; i < GROUP_MOST; i++) {
    low = fminf(low, x[i]);
    high = fmaxf(high, x[i]);
  }
  struct line best = {(high - low) / g->most, -low};
  float least = error_of(g, x, GROUP_MOST, best.scale, best.less);
  for (int k = -2 * TRIES; k <= TRIES && high > low; k++) {
    const struct line fit = refit_line(g, x, (struct line){(high - low) / (g->most + (float)k * g->step), -low});
    const float error = fit.scale > 0 ? error_of(g, x, GROUP_MOST, fit.scale, fit.less) : INFINITY;
    if (error >= least) continue;
    best = fit;
    least = error;
  }
  return best;
}

struct lines {
  struct line d;            // of the block
  struct line each[GROUPS]; // whole numbers from 0 to 63
};

static float round_line(const struct grid *g, const float *x, struct line d, struct line wanted, struct line *out) {
  const float scale = d.scale ? whole(clamp(wanted.scale / d.scale, 0, 63)) : 0;
  const float less = d.less ? whole(clamp(wanted.less / d.less, 0, 63)) : 0;
  float least = INFINITY;
  for (float s = clamp(scale - 1, 0, 63); s <= clamp(scale + 1, 0, 63); s++)
    for (float m = clamp(less - 1, 0, 63); m <= clamp(less + 1, 0, 63); m++) {
      const float error = error_of(g, x, GROUP_MOST, d.scale * s, d.less * m);
      if (error >= least) continue;
      least = error;
      *out = (struct line){s, m};
    }
  return least;
}

static float round_lines(const struct grid *g, const float *x, const struct line *wanted, struct lines *l) {
  float error = 0;
  for (int j = 0; j < GROUPS; j++) error += round_line(g, x + j * GROUP_MOST, l->d, wanted[j], &l->each[j]);
  return error;
}

// The best d for the groups' whole numbers and the grid points that these give: x is about d.scale u - d.less m.
static struct line refit_lines(const struct grid *g, const float *x, const struct lines *l) {
  float uu = 0, um = 0, mm = 0, xu = 0, xm = 0;
  for (int j = 0; j < GROUPS; j++) {
    const float m = l->each[j].less, less = l->d.less * m, factor = inverse(l->d.scale * l->each[j].scale);
    for (int i = 0; i < GROUP_MOST; i++) {
      const float v = x[j * GROUP_MOST + i], u = l->each[j].scale * nearest(g, (v + less) * factor);
      uu += u * u;
      um += u * m;
      mm += m * m;
      xu += v * u;
      xm += v * m;
    }
  }
  const float area = uu * mm - um * um;
  if (area <= 0) return (struct line){uu > 0 ? xu / uu : 0, 0};
  return (struct line){(xu * mm - xm * um) / area, (xu * um - xm * uu) / area};
}

static struct lines find_lines(const struct grid *g, const float *x) {
  struct line wanted[GROUPS], most = {0, 0};
  for (int j = 0; j < GROUPS; j++) {
    wanted[j] = find_line(g, x + j * GROUP_MOST);
    most = (struct line){fmaxf(most.scale, wanted[j].scale), fmaxf(most.less, wanted[j].less)};
  }
  struct lines best = {.d = {block_scale(most.scale / 63), block_scale(most.less / 63)}};
  float least = round_lines(g, x, wanted, &best);
  for (int k = 0; k < 2; k++) {
    const struct line d = refit_lines(g, x, &best);
    struct lines l = {.d = {f16(d.scale), f16(d.less)}};
    if (l.d.scale <= 0 || l.d.less < 0) break;
    const float error = round_lines(g, x, wanted, &l);
    if (error >= least) break;
    best = l;
    least = error;
  }
  return best;
}

// Six bits of a scale and of a minimum of eight groups, in 12 bytes.
static void put_groups(const struct lines *l, uint8_t *to) {
  memset(to, 0, 12);
  for (int j = 0; j < GROUPS; j++) {
    const uint32_t s = (uint32_t)l->each[j].scale, m = (uint32_t)l->each[j].less;
    if (j < 4) {
      to[j] |= (uint8_t)s;
      to[j + 4] |= (uint8_t)m;
    } else {
      to[j + 4] = (uint8_t)((s & 15) | (m & 15) << 4);
      to[j - 4] |= (uint8_t)(s >> 4 << 6);
      to[j] |= (uint8_t)(m >> 4 << 6);
    }
  }
}

static void encode_k(const float *x, bool five, uint8_t *b) {
  const struct grid *g = five ? &grid_5_up : &grid_4_up;
  const struct lines l = find_lines(g, x);
  uint8_t *fifth = b + 16, *to = five ? b + 48 : b + 16;
  put_f16(b, l.d.scale);
  put_f16(b + 2, l.d.less);
  put_groups(&l, b + 4);
  memset(b + 16, 0, five ? 160 : 128);
  for (int j = 0; j < GROUPS; j++) {
    const float less = l.d.less * l.each[j].less, factor = inverse(l.d.scale * l.each[j].scale);
    for (int i = 0; i < GROUP_MOST; i++) {
      const uint32_t q = (uint32_t)nearest(g, (*x++ + less) * factor);
      to[j / 2 * 32 + i] |= (uint8_t)((q & 15) << (j % 2 * 4));
      if (five) fifth[i] |= (uint8_t)((q >> 4) << j);
    }
  }
}

static void encode_q4_k(const float *x, uint8_t *b) { encode_k(x, false, b); }
static void encode_q5_k(const float *x, uint8_t *b) { encode_k(x, true, b); }

// ---------------------------------------------------------------- single numbers

static void encode_f32(const float *x, uint8_t *out) { memcpy(out, x, sizeof *x); }
static void encode_f16(const float *x, uint8_t *out) { put_f16(out, *x); }

static void encode_bf16(const float *x, uint8_t *out) {
  const uint16_t h = f32_to_bf16(*x);
  memcpy(out, &h, 2);
}

// Each encodes one block.
static void (*const encoders[DTYPE_I32])(const float *x, uint8_t *block) = {
    [DTYPE_F32] = encode_f32,       [DTYPE_F16] = encode_f16,      [DTYPE_BF16] = encode_bf16,
    [DTYPE_Q8_0] = encode_q8_0,     [DTYPE_Q4_0] = encode_q4_0,    [DTYPE_Q5_0] = encode_q5_0,
    [DTYPE_Q4_K] = encode_q4_k,     [DTYPE_Q5_K] = encode_q5_k,    [DTYPE_Q6_K] = encode_q6_k,
    [DTYPE_IQ4_NL] = encode_iq4_nl, [DTYPE_IQ4_XS] = encode_iq4_xs};

bool dtype_encodes(enum dtype dtype) { return dtype < DTYPE_I32 && encoders[dtype]; }

void dtype_encode(enum dtype dtype, const float *x, uint64_t n, void *out) {
  const struct format *f = &formats[dtype];
  uint8_t *to = out;
  for (uint64_t i = 0; i < n; i += f->elements, to += f->bytes) encoders[dtype](x + i, to);
}
