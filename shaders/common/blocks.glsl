// blocks.glsl: the part of weights.glsl for formats of blocks of integers with common scales (formats.h; format.c has
// their layouts). A group of 8 is 8 signed bytes, a factor and an addend: byte * factor + addend. Both operations are
// exact, but for the addition in Q4_K and Q5_K. Blocks begin at multiples of two bytes.
#include "formats.h"
layout(set = 0, binding = WEIGHTS_BINDING) readonly buffer weights_block { uint weights[]; };
#define PACKED8 uvec4
#define PACKED8_ZERO uvec4(0)

// Positions are counted in units of 16 bits.
uint word_at(uint at) {
  uint i = at / 2;
  return at % 2 == 0 ? weights[i] : weights[i] >> 16 | weights[i + 1] << 16;
}

uvec2 words_at(uint at) {
  uint i = at / 2;
  uvec3 w = uvec3(weights[i], weights[i + 1], at % 2 != 0 ? weights[i + 2] : 0);
  return at % 2 == 0 ? w.xy : w.xy >> 16 | w.yz << 16;
}

float f16_at(uint at) { return unpackHalf2x16(weights[at / 2] >> at % 2 * 16).x; }

PACKED8 packed(uvec2 bytes, float factor, float addend) {
  return PACKED8(bytes, floatBitsToUint(factor), floatBitsToUint(addend));
}

uvec2 low_halves(uvec2 bytes, uint shift) { return bytes >> shift & 0x0f0f0f0f; }

// Four bits, as bit 4 of each byte.
uint fifth_bits(uint bits) { return (bits & 1) << 4 | (bits & 2) << 11 | (bits & 4) << 18 | (bits & 8) << 25; }

// The table of IQ4 at the four bytes' indices.
uint iq4(uint indices) {
  const uvec4 TABLE = uvec4(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
  uint bytes = 0;
  for (uint shift = 0; shift < 32; shift += 8) {
    uint i = indices >> shift & 15;
    bytes |= (TABLE[i / 4] >> i % 4 * 8 & 255) << shift;
  }
  return bytes;
}

// Group `part` of four in a block of 32.
PACKED8 packed_of_32(uint at, uint part) {
  if (FORMAT == FORMAT_Q8_0) return packed(words_at(at + 1 + part * 4), f16_at(at), 0.0);
  uint first = at + (FORMAT == FORMAT_Q5_0 ? 3 : 1);
  uvec2 q = low_halves(words_at(first + part % 2 * 4), part / 2 * 4);
  float d = f16_at(at);
  if (FORMAT == FORMAT_IQ4_NL) return packed(uvec2(iq4(q.x), iq4(q.y)), d, 0.0);
  if (FORMAT == FORMAT_Q4_0) return packed(q, d, -8.0 * d);
  uint bits = word_at(at + 1) >> part * 8;
  return packed(q | uvec2(fifth_bits(bits), fifth_bits(bits >> 4)), d, -16.0 * d);
}

// Group `part` of 32 in a block of 256, in groups j of 32 elements.
PACKED8 packed_of_k(uint at, uint part) {
  uint j = part / 4, quarter = part % 4, shift = j % 4 * 8;
  uvec3 scales = uvec3(word_at(at + 2), word_at(at + 4), word_at(at + 6)) >> shift & 255;
  uvec2 sm = j < 4 ? scales.xy & 63 : uvec2(scales.z & 15, scales.z >> 4) | scales.xy >> 6 << 4; // scale, minimum
  vec2 d = unpackHalf2x16(word_at(at));
  uint first = at + (FORMAT == FORMAT_Q5_K ? 24 : 8);
  uvec2 q = low_halves(words_at(first + j / 2 * 16 + quarter * 4), j % 2 * 4);
  if (FORMAT == FORMAT_Q5_K) q |= (words_at(at + 8 + quarter * 4) >> j & 0x01010101) << 4;
  return packed(q, d.x * float(sm.x), -d.y * float(sm.y));
}

PACKED8 packed_of_q6_k(uint at, uint part) {
  uint half_ = part / 16, r = part / 4 % 4, quarter = part % 4;
  uvec2 q = low_halves(words_at(at + half_ * 32 + r % 2 * 16 + quarter * 4), r / 2 * 4);
  q |= (words_at(at + 64 + half_ * 16 + quarter * 4) >> 2 * r & 0x03030303) << 4;
  uint scale = weights[(at + 96 + part / 4) / 2] >> (at + 96 + part / 4) % 2 * 16;
  float factor = f16_at(at + 104) * float(bitfieldExtract(int(scale), int(part / 2 % 2 * 8), 8));
  return packed(q, factor, -32.0 * factor);
}

PACKED8 packed_of_iq4_xs(uint at, uint part) {
  uint j = part / 4;
  uvec2 head = words_at(at); // d and the pairs of high bits, the low halves
  uint scale = (head.y >> j * 4 & 15) | (head.x >> 16 + 2 * j & 3) << 4;
  uvec2 q = low_halves(words_at(at + 4 + j * 8 + part % 2 * 4), part / 2 % 2 * 4);
  return packed(uvec2(iq4(q.x), iq4(q.y)), unpackHalf2x16(head.x).x * (float(scale) - 32.0), 0.0);
}

PACKED8 packed8(uint group) {
  switch (FORMAT) {
  case FORMAT_Q8_0: return packed_of_32(group / 4 * 17, group % 4);
  case FORMAT_Q4_0:
  case FORMAT_IQ4_NL: return packed_of_32(group / 4 * 9, group % 4);
  case FORMAT_Q5_0: return packed_of_32(group / 4 * 11, group % 4);
  case FORMAT_Q4_K: return packed_of_k(group / 32 * 72, group % 32);
  case FORMAT_Q5_K: return packed_of_k(group / 32 * 88, group % 32);
  case FORMAT_Q6_K: return packed_of_q6_k(group / 32 * 105, group % 32);
  default: return packed_of_iq4_xs(group / 32 * 68, group % 32);
  }
}

vec4 widen(uint bytes) {
  return vec4(bitfieldExtract(int(bytes), 0, 8), bitfieldExtract(int(bytes), 8, 8), bitfieldExtract(int(bytes), 16, 8),
              bitfieldExtract(int(bytes), 24, 8));
}

void widen8(PACKED8 w, out vec4 low, out vec4 high) {
  float factor = uintBitsToFloat(w.z), addend = uintBitsToFloat(w.w);
  low = widen(w.x) * factor + addend;
  high = widen(w.y) * factor + addend;
}
