// format: see format.h. Conversions to and from both 16-bit formats keep zeros, denormals, infinities and NaNs.
#include "format.h"

#include <string.h>

static float from_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static uint32_t to_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

// The 15 bits without the sign, moved to their position in f32, are the value times 2^-112, denormals included. A
// product with a power of two is exact. Infinity and NaN get their f32 exponent separately.
float f16_to_f32(uint16_t h) {
  uint32_t magnitude = (h & 0x7fffu) << 13;
  uint32_t bits = magnitude < 0x0f800000u ? to_bits(from_bits(magnitude) * 0x1p112f) : magnitude | 0x7f800000u;
  return from_bits(bits | (h & 0x8000u) << 16);
}

float bf16_to_f32(uint16_t h) { return from_bits((uint32_t)h << 16); }

uint16_t f32_to_f16(float f) {
  uint32_t bits = to_bits(f), sign = bits >> 16 & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu)); // NaN, made quiet
  if (bits >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); // 65520 and above round to infinity
  if (bits >= 0x38800000u) {                                  // normal: re-bias by 127 - 15
    bits -= 0x38000000u;
    return (uint16_t)(sign | ((bits + 0xfffu + (bits >> 13 & 1)) >> 13));
  }
  // Denormal: the last bit of 0.5 is worth 2^-24, so adding 0.5 rounds to nearest even.
  return (uint16_t)(sign | (to_bits(from_bits(bits) + 0.5f) - 0x3f000000u));
}

uint16_t f32_to_bf16(float f) {
  uint32_t bits = to_bits(f);
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

// Blocks of an f16 scale and 32 signed bytes (GGUF).
static void decode_q8_0(const void *blocks, uint64_t n, float *out) {
  for (const char *block = blocks; n--; block += 34, out += 32) {
    uint16_t scale;
    memcpy(&scale, block, 2);
    for (int i = 0; i < 32; i++) out[i] = f16_to_f32(scale) * (float)(int8_t)block[2 + i];
  }
}

const struct format formats[] = {[DTYPE_F32] = {"f32", 1, 4, decode_f32},
                                 [DTYPE_F16] = {"f16", 1, 2, decode_f16},
                                 [DTYPE_BF16] = {"bf16", 1, 2, decode_bf16},
                                 [DTYPE_Q8_0] = {"q8_0", 32, 34, decode_q8_0},
                                 [DTYPE_I32] = {"i32", 1, 4, NULL}};

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
