// format_encode: see format_encode.h. format.c describes the blocks; fit_scales.c finds their scales.
#include "format_encode.h"

#include "fit_scales.h"

#include <string.h>

static const float iq4[GRID_TABLE] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const struct grid grid_4 = {-8, 7, NULL, 0.3f}, grid_5 = {-16, 15, NULL, 0.4f}, grid_6 = {-32, 31, NULL, 0.4f},
                         grid_8 = {-127, 127, NULL, 0.4f}, grid_iq4 = {-127, 113, iq4, 2},
                         grid_4_up = {0, 15, NULL, 0.15f}, grid_5_up = {0, 31, NULL, 0.15f};

// ---------------------------------------------------------------- one scale

static void put_f16(uint8_t *to, float x) {
  const uint16_t h = f32_to_f16(x);
  memcpy(to, &h, 2);
}

static void indices(const struct grid *g, const float *x, int n, float scale, uint8_t *out) {
  const float factor = inverse(scale);
  for (int i = 0; i < n; i++) out[i] = (uint8_t)grid_index(g, x[i] * factor);
}

static void halves(const uint8_t q[32], uint8_t out[16]) {
  for (int i = 0; i < 16; i++) out[i] = (uint8_t)((q[i] & 15) | q[16 + i] << 4);
}

static void encode_q8_0(const float *x, uint8_t *b) {
  const float scale = fit_scale(&grid_8, x), factor = inverse(scale);
  put_f16(b, scale);
  for (int i = 0; i < 32; i++) b[2 + i] = (uint8_t)(int8_t)grid_nearest(&grid_8, x[i] * factor);
}

static void encode_four(const struct grid *g, const float *x, uint8_t *b) {
  uint8_t q[32];
  const float scale = fit_scale(g, x);
  put_f16(b, scale);
  indices(g, x, 32, scale, q);
  halves(q, b + 2);
}

static void encode_q4_0(const float *x, uint8_t *b) { encode_four(&grid_4, x, b); }
static void encode_iq4_nl(const float *x, uint8_t *b) { encode_four(&grid_iq4, x, b); }

static void encode_q5_0(const float *x, uint8_t *b) {
  uint8_t q[32];
  uint32_t fifth = 0;
  const float scale = fit_scale(&grid_5, x);
  indices(&grid_5, x, 32, scale, q);
  for (uint32_t i = 0; i < 32; i++) fifth |= (uint32_t)(q[i] >> 4) << i;
  put_f16(b, scale);
  memcpy(b + 2, &fifth, 4);
  halves(q, b + 6);
}

// ---------------------------------------------------------------- a scale a group

static void encode_q6_k(const float *x, uint8_t *b) {
  const struct scaled s = fit_scales(&grid_6, x, 16, -128, 127);
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
  const struct scaled s = fit_scales(&grid_iq4, x, 32, -32, 31);
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
  const struct lines l = fit_lines(g, x);
  uint8_t *fifth = b + 16, *to = five ? b + 48 : b + 16;
  put_f16(b, l.d.scale);
  put_f16(b + 2, l.d.less);
  put_groups(&l, b + 4);
  memset(b + 16, 0, five ? 160 : 128);
  for (int j = 0; j < GROUPS; j++) {
    const float less = l.d.less * l.each[j].less, factor = inverse(l.d.scale * l.each[j].scale);
    for (int i = 0; i < GROUP_MOST; i++) {
      const uint32_t q = (uint32_t)grid_nearest(g, (*x++ + less) * factor);
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
