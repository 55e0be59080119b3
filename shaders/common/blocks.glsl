// blocks.glsl: the part of weights.glsl for tiles of integers with common scales (formats.h; format_tiles.c has their
// layout). An element is integer * factor + addend. Both operations are exact, but for the addition in Q4_K and Q5_K.
// Loads are apart from the decoding, so that many can be under way.
#include "formats.h"
layout(set = 0, binding = WEIGHTS_BINDING) readonly buffer weights_block { uint weights[]; };
layout(set = 0, binding = WEIGHTS_BINDING) readonly buffer weights2_block { uvec2 weights2[]; };
layout(set = 0, binding = WEIGHTS_BINDING) readonly buffer weights4_block { uvec4 weights4[]; };

const bool FIVE = FORMAT == FORMAT_Q5_0 || FORMAT == FORMAT_Q5_K, SIX = FORMAT == FORMAT_Q6_K;
const bool IS_K = FORMAT == FORMAT_Q4_K || FORMAT == FORMAT_Q5_K, EIGHT = FORMAT == FORMAT_Q8_0;
const bool IQ4 = FORMAT == FORMAT_IQ4_NL || FORMAT == FORMAT_IQ4_XS;
const bool TWO_FACTORS = SIX; // of the halves of a group of 32
// In units of 16 bytes: a tile, and where the bits above the fourth and the other bits begin.
const uint TILE_UNITS = EIGHT ? 17 : FIVE ? 11 : SIX ? 14 : 9;
const uint HIGH_BITS = SIX ? 2 : 1, LOW_BITS = FIVE ? 3 : SIX ? 6 : 1;

// ---------------------------------------------------------------- scales

struct scales {
  uint d, some, high; // words of the tile
  uint j;             // the group of 32
};

scales load_scales(uint tile, uint j) {
  uint at = tile * TILE_UNITS * 4;
  uint d = weights[at + (SIX ? j : IS_K || FORMAT == FORMAT_IQ4_XS ? 0 : j / 2)];
  if (IS_K) return scales(d, weights[at + 1 + j / 4], weights[at + 3], j);
  if (FORMAT == FORMAT_IQ4_XS) return scales(d, weights[at + 1 + j / 4], 0, j);
  return scales(d, 0, 0, j);
}

float signed_byte(uint word, uint i) { return float(bitfieldExtract(int(word), int(8 * i), 8)); }

// The factor and addend of one half of the group.
vec2 decode_scales(scales s, uint half_) {
  if (IS_K) {
    uint low = s.some >> s.j % 4 * 8, high = s.high >> s.j * 4;
    vec2 d = unpackHalf2x16(s.d);
    return vec2(d.x * float((low & 15) | (high & 3) << 4), -d.y * float((low >> 4 & 15) | (high & 12) << 2));
  }
  if (SIX) {
    float factor = unpackHalf2x16(s.d).y * signed_byte(s.d, half_);
    return vec2(factor, -32.0 * factor);
  }
  if (FORMAT == FORMAT_IQ4_XS) return vec2(unpackHalf2x16(s.d).x * signed_byte(s.some, s.j % 4), 0.0);
  float d = unpackHalf2x16(s.d >> s.j % 2 * 16).x;
  return vec2(d, FORMAT == FORMAT_Q4_0 ? -8.0 * d : FORMAT == FORMAT_Q5_0 ? -16.0 * d : 0.0);
}

// ---------------------------------------------------------------- integers, four bytes at once

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

// Elements 4 w ... 4 w + 3 of a group: `low` has their low bits; `high` is the word of the group's bits, or of the half's.
uint integers(uint low, uint high, uint w) {
  if (EIGHT) return low;
  uint q = low >> w / 4 * 4 & 0x0f0f0f0f;
  if (IQ4) return iq4(q);
  if (FIVE) q |= (high >> w & 0x01010101) << 4;
  if (SIX) q |= (high >> w % 4 * 2 & 0x03030303) << 4;
  return q;
}

// The word of bits above the fourth for half a group.
uint load_high(uint tile, uint j, uint half_) {
  uint at = (tile * TILE_UNITS + HIGH_BITS) * 4;
  if (FIVE) return weights[at + j];
  if (SIX) return weights[at + 2 * j + half_];
  return 0;
}

vec4 widen(uint bytes) {
  return vec4(bitfieldExtract(int(bytes), 0, 8), bitfieldExtract(int(bytes), 8, 8), bitfieldExtract(int(bytes), 16, 8),
              bitfieldExtract(int(bytes), 24, 8));
}

// ---------------------------------------------------------------- groups of 8

struct group8 {
  uvec2 low;
  uint high;
  scales s;
  uint part; // of the group of 32
};
#define PACKED8 group8
#define PACKED8_ZERO group8(uvec2(0), 0, scales(0, 0, 0, 0), 0)

PACKED8 packed8(uint group) {
  uint tile = group / 32, j = group / 4 % 8, part = group % 4, at = tile * TILE_UNITS;
  uvec2 low = EIGHT ? weights2[(at + 1 + 2 * j) * 2 + part] : weights2[(at + LOW_BITS + j) * 2 + part % 2];
  return PACKED8(low, load_high(tile, j, part / 2), load_scales(tile, j), part);
}

void widen8(PACKED8 w, out vec4 low, out vec4 high) {
  vec2 factor = decode_scales(w.s, w.part / 2);
  low = widen(integers(w.low.x, w.high, 2 * w.part)) * factor.x + factor.y;
  high = widen(integers(w.low.y, w.high, 2 * w.part + 1)) * factor.x + factor.y;
}

// ---------------------------------------------------------------- groups of 16

struct group16 {
  uvec4 low; // both halves of the group of 32, but for Q8_0
  uint high;
  scales s;
  uint half_; // of the group of 32
};
#define PACKED16 group16
#define PACKED16_ZERO group16(uvec4(0), 0, scales(0, 0, 0, 0), 0)

PACKED16 packed16(uint group) {
  uint tile = group / 16, j = group / 2 % 8, half_ = group % 2, at = tile * TILE_UNITS;
  uvec4 low = weights4[at + (EIGHT ? 1 + 2 * j + half_ : LOW_BITS + j)];
  return PACKED16(low, load_high(tile, j, half_), load_scales(tile, j), half_);
}
