// format: see format.h. Conversions to and from both 16-bit formats keep zeros, denormals, infinities and NaNs.
#include "format.h"

#include <math.h>
#include <string.h>

// The 15 bits without the sign, moved to their position in f32, are the value times 2^-112, denormals included. A
// product with a power of two is exact. Infinity and NaN get their f32 exponent separately.
float f16_to_f32(uint16_t h) {
  uint32_t magnitude = (h & 0x7fffu) << 13;
  uint32_t bits = magnitude < 0x0f800000u ? bits_of(float_of(magnitude) * 0x1p112f) : magnitude | 0x7f800000u;
  return float_of(bits | (h & 0x8000u) << 16);
}

float bf16_to_f32(uint16_t h) { return float_of((uint32_t)h << 16); }

uint16_t f32_to_f16(float f) {
  uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu)); // NaN, made quiet
  if (bits >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); // 65520 and above round to infinity
  if (bits >= 0x38800000u) {                                  // normal: re-bias by 127 - 15
    bits -= 0x38000000u;
    return (uint16_t)(sign | ((bits + 0xfffu + (bits >> 13 & 1)) >> 13));
  }
  // Denormal: the last bit of 0.5 is worth 2^-24, so adding 0.5 rounds to nearest even.
  return (uint16_t)(sign | (bits_of(float_of(bits) + 0.5f) - 0x3f000000u));
}

uint16_t f32_to_bf16(float f) {
  uint32_t bits = bits_of(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// ---------------------------------------------------------------- decoding

static void decode_f32(const void *blocks, uint64_t n, float *out) { memcpy(out, blocks, n * sizeof *out); }

static void decode_f16(const void *blocks, uint64_t n, float *out) {
  const uint16_t *h = blocks;
  for (uint64_t i = 0; i < n; i++) out[i] = f16_to_f32(h[i]);
}

static void decode_bf16(const void *blocks, uint64_t n, float *out) {
  const uint16_t *h = blocks;
  for (uint64_t i = 0; i < n; i++) out[i] = bf16_to_f32(h[i]);
}

// ---------------------------------------------------------------- decoding blocks (GGUF)

// `blocks` may be unaligned. Products are exact, as they have at most 24 bits; the difference in Q4_K and Q5_K is
// rounded once.
static float scale_at(const uint8_t *bytes) {
  uint16_t h;
  memcpy(&h, bytes, 2);
  return f16_to_f32(h);
}

// d, 32 signed bytes.
static void decode_q8_0(const void *blocks, uint64_t n, float *out) {
  for (const uint8_t *b = blocks; n--; b += 34, out += 32) {
    const float d = scale_at(b);
    for (int i = 0; i < 32; i++) out[i] = d * (float)(int8_t)b[2 + i];
  }
}

// d, 16 bytes: their low halves are elements 0 ... 15, the high ones 16 ... 31.
static void decode_q4_0(const void *blocks, uint64_t n, float *out) {
  for (const uint8_t *b = blocks; n--; b += 18, out += 32) {
    const float d = scale_at(b);
    for (int i = 0; i < 16; i++) {
      out[i] = d * (float)((b[2 + i] & 15) - 8);
      out[16 + i] = d * (float)((b[2 + i] >> 4) - 8);
    }
  }
}

// As Q4_0, with a fifth bit for every element between d and the bytes.
static void decode_q5_0(const void *blocks, uint64_t n, float *out) {
  for (const uint8_t *b = blocks; n--; b += 22, out += 32) {
    const float d = scale_at(b);
    uint32_t fifth;
    memcpy(&fifth, b + 2, 4);
    for (uint32_t i = 0; i < 16; i++) {
      const uint32_t low = b[6 + i] & 15u, high = b[6 + i] >> 4;
      out[i] = d * (float)((int)(low | (fifth >> i & 1) << 4) - 16);
      out[16 + i] = d * (float)((int)(high | (fifth >> (16 + i) & 1) << 4) - 16);
    }
  }
}

// The scale and the minimum, of six bits each, of group j of eight, from 12 bytes.
static void scales_of_group(const uint8_t *s, int j, uint32_t *scale, uint32_t *minimum) {
  if (j < 4) {
    *scale = s[j] & 63;
    *minimum = s[j + 4] & 63;
  } else {
    *scale = (s[j + 4] & 15u) | (uint32_t)(s[j - 4] >> 6) << 4;
    *minimum = (uint32_t)(s[j + 4] >> 4) | (uint32_t)(s[j] >> 6) << 4;
  }
}

// d, d of the minima, 12 bytes of scales and minima, then (Q5_K) 32 bytes of fifth bits, bit j for group j, then 128
// bytes: groups 2 j and 2 j + 1 are the low and high halves of 32 bytes.
static void decode_k(const uint8_t *b, bool five, float *out) {
  const float d = scale_at(b), d_minimum = scale_at(b + 2);
  const uint8_t *fifth = b + 16, *halves = five ? b + 48 : b + 16;
  for (int j = 0; j < 8; j++) {
    uint32_t scale, minimum;
    scales_of_group(b + 4, j, &scale, &minimum);
    const float factor = d * (float)scale, less = d_minimum * (float)minimum;
    for (int i = 0; i < 32; i++) {
      uint32_t q = halves[j / 2 * 32 + i] >> (j % 2 * 4) & 15u;
      if (five) q |= (fifth[i] >> j & 1u) << 4;
      *out++ = factor * (float)q - less;
    }
  }
}

static void decode_q4_k(const void *blocks, uint64_t n, float *out) {
  for (const uint8_t *b = blocks; n--; b += 144, out += 256) decode_k(b, false, out);
}

static void decode_q5_k(const void *blocks, uint64_t n, float *out) {
  for (const uint8_t *b = blocks; n--; b += 176, out += 256) decode_k(b, true, out);
}

// 128 bytes of low halves, 64 bytes of pairs of high bits, 16 signed scales, d. Of each half of the elements, quarter r
// has the low (r < 2) or high halves of 32 bytes, and bits 2 r and 2 r + 1 of 32 bytes.
static void decode_q6_k(const void *blocks, uint64_t n, float *out) {
  for (const uint8_t *b = blocks; n--; b += 210) {
    const float d = scale_at(b + 208);
    for (int group = 0; group < 16; group++, out += 16) {
      const int half = group / 8, r = group / 2 % 4, begin = group % 2 * 16;
      const uint8_t *low = b + half * 64 + r % 2 * 32 + begin, *high = b + 128 + half * 32 + begin;
      const float factor = d * (float)(int8_t)b[192 + group];
      for (int i = 0; i < 16; i++) {
        const int q = (low[i] >> (r / 2 * 4) & 15) | (high[i] >> (2 * r) & 3) << 4;
        out[i] = factor * (float)(q - 32);
      }
    }
  }
}

static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Elements of a table, chosen by the halves of 16 bytes.
static void decode_iq4(const uint8_t *b, float factor, float *out) {
  for (int i = 0; i < 16; i++) {
    out[i] = factor * (float)iq4[b[i] & 15];
    out[16 + i] = factor * (float)iq4[b[i] >> 4];
  }
}

static void decode_iq4_nl(const void *blocks, uint64_t n, float *out) {
  for (const uint8_t *b = blocks; n--; b += 18, out += 32) decode_iq4(b + 2, scale_at(b), out);
}

// d, the high bit pairs of eight scales, their low halves, eight groups of 16 bytes.
static void decode_iq4_xs(const void *blocks, uint64_t n, float *out) {
  for (const uint8_t *b = blocks; n--; b += 136) {
    const float d = scale_at(b);
    const uint32_t pairs = b[2] | (uint32_t)b[3] << 8;
    for (int j = 0; j < 8; j++, out += 32) {
      const uint32_t scale = (b[4 + j / 2] >> (j % 2 * 4) & 15u) | (pairs >> (2 * j) & 3) << 4;
      decode_iq4(b + 8 + 16 * j, d * (float)((int)scale - 32), out);
    }
  }
}

const struct format formats[] = {[DTYPE_F32] = {"f32", 1, 4, decode_f32, {{0}}},
                                 [DTYPE_F16] = {"f16", 1, 2, decode_f16, {{0}}},
                                 [DTYPE_BF16] = {"bf16", 1, 2, decode_bf16, {{0}}},
                                 [DTYPE_Q8_0] = {"q8_0", 32, 34, decode_q8_0, {{0, 128}}},
                                 [DTYPE_Q4_0] = {"q4_0", 32, 18, decode_q4_0, {{0, 8}}},
                                 [DTYPE_Q5_0] = {"q5_0", 32, 22, decode_q5_0, {{0, 16}}},
                                 [DTYPE_Q4_K] = {"q4_k", 256, 144, decode_q4_k, {{0, 63 * 15}, {2, 63}}},
                                 [DTYPE_Q5_K] = {"q5_k", 256, 176, decode_q5_k, {{0, 63 * 31}, {2, 63}}},
                                 [DTYPE_Q6_K] = {"q6_k", 256, 210, decode_q6_k, {{208, 128 * 32}}},
                                 [DTYPE_IQ4_NL] = {"iq4_nl", 32, 18, decode_iq4_nl, {{0, 127}}},
                                 [DTYPE_IQ4_XS] = {"iq4_xs", 256, 136, decode_iq4_xs, {{0, 32 * 127}}},
                                 [DTYPE_TILED_Q8_0] = {"q8_0", 256, 272, NULL, {{0}}},
                                 [DTYPE_TILED_Q4_0] = {"q4_0", 256, 144, NULL, {{0}}},
                                 [DTYPE_TILED_Q5_0] = {"q5_0", 256, 176, NULL, {{0}}},
                                 [DTYPE_TILED_Q4_K] = {"q4_k", 256, 144, NULL, {{0}}},
                                 [DTYPE_TILED_Q5_K] = {"q5_k", 256, 176, NULL, {{0}}},
                                 [DTYPE_TILED_Q6_K] = {"q6_k", 256, 224, NULL, {{0}}},
                                 [DTYPE_TILED_IQ4_NL] = {"iq4_nl", 256, 144, NULL, {{0}}},
                                 [DTYPE_TILED_IQ4_XS] = {"iq4_xs", 256, 144, NULL, {{0}}},
                                 [DTYPE_I32] = {"i32", 1, 4, NULL, {{0}}}};

float dtype_blocks_bound(enum dtype dtype, const void *blocks, uint64_t n) {
  const struct format *f = &formats[dtype];
  float most = 0;
  for (const uint8_t *b = blocks; n-- && !isnan(most); b += f->bytes) {
    float bound = 0;
    for (int i = 0; i < 2; i++)
      if (f->scales[i].most > 0) bound += fabsf(scale_at(b + f->scales[i].at)) * f->scales[i].most;
    if (!(bound <= most)) most = bound; // NaN too
  }
  return most;
}

void dtype_decode(enum dtype dtype, const void *row, uint64_t first, uint64_t n, float *out) {
  const struct format *f = &formats[dtype];
  const char *block = (const char *)row + first / f->elements * f->bytes;
  float some[BLOCK_MOST];
  for (uint64_t skip = first % f->elements; n; skip = 0) {
    const uint64_t whole = skip ? 0 : n / f->elements;
    uint64_t count = whole * f->elements;
    if (whole)
      f->decode(block, whole, out);
    else {
      count = f->elements - skip < n ? f->elements - skip : n;
      f->decode(block, 1, some);
      memcpy(out, some + skip, count * sizeof *out);
    }
    block += (whole ? whole : 1) * f->bytes;
    out += count;
    n -= count;
  }
}
