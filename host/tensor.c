// tensor: sizes of views, and 16-bit floats. Both 16-bit formats keep zeros, denormals, infinities and NaNs.
#include "tensor.h"

#include <string.h>

const char *dtype_name(enum dtype dtype) {
  static const char *const names[] = {"f32", "f16", "bf16", "i32"};
  return names[dtype];
}

uint64_t tensor_bytes(const struct tensor *t) {
  if (!t->buffer || !t->rows || !t->cols) return 0;
  return ((uint64_t)(t->rows - 1) * t->stride + t->cols) * dtype_bytes(t->dtype);
}

struct tensor tensor_rows(struct tensor t, uint32_t first, uint32_t rows) {
  t.offset += (uint64_t)first * t.stride * dtype_bytes(t.dtype);
  t.rows = rows;
  return t;
}

struct tensor tensor_as(struct tensor t, enum dtype dtype) {
  if (t.dtype == dtype) return t;
  uint64_t vectors = round_up(t.cols, 8); // rows that kernels read in vectors of 8, where there is room
  t.stride = vectors * dtype_bytes(dtype) <= t.stride * dtype_bytes(t.dtype) ? (uint32_t)vectors : t.cols;
  t.dtype = dtype;
  return t;
}

struct tensor tensor_cols(struct tensor t, uint32_t first, uint32_t cols) {
  t.offset += first * dtype_bytes(t.dtype);
  t.cols = cols;
  return t;
}

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

// The 15 bits without sign, moved to where f32 has them, are the value times 2^-112, denormals included: a product with
// a power of two is exact. Infinity and NaN get the f32 exponent by hand.
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
  // Denormal: adding 0.5, whose last bit is worth 2^-24, lets the addition round to nearest even.
  return (uint16_t)(sign | (to_bits(from_bits(bits) + 0.5f) - 0x3f000000u));
}

uint16_t f32_to_bf16(float f) {
  uint32_t bits = to_bits(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
