// format_tiles: blocks of weights in the order that kernels read (shaders/common/blocks.glsl).
//
// A tile has 256 elements, in eight groups of 32. It begins at a multiple of 16 bytes and has three parts: scales, high
// bits, low bits.
//
// Scales, with the names of GGUF's blocks (d: an f16 factor):
//   Q8_0, Q4_0, Q5_0, IQ4_NL  d of each group
//   Q4_K, Q5_K                d of the scales, d of the minima. Then a byte for each group: the low four bits of its
//                             scale and of its minimum. Then half a byte for each group: the high two bits of both
//   Q6_K                      for each group: the scale of its first 16 elements, that of its last 16, d
//   IQ4_XS                    d, two bytes of zeros, a signed byte for each group (its scale), four bytes of zeros
//
// High bits: those above the low four bits of an element.
//   Q5_0, Q5_K  a word of 32 bits for each group: bit 8 c + w is the fifth bit of element 4 w + c
//   Q6_K        two words for each group, one for each half: bits 8 c + 2 w and 8 c + 2 w + 1 are the fifth and the
//               sixth bit of element 4 w + c of that half
//
// Low bits: 16 bytes a group. Byte i has the low four bits of element i in its low half, and those of element 16 + i in
// its high half. Q8_0 has 32 bytes a group, one for each element.
#include "format.h"

// Words are copied as they are in memory: host and GPU are both little-endian. A word's bytes are used in parallel.
static uint32_t word_at(const uint8_t *bytes) {
  uint32_t word;
  memcpy(&word, bytes, 4);
  return word;
}

static uint64_t words_at(const uint8_t *bytes) {
  uint64_t words;
  memcpy(&words, bytes, 8);
  return words;
}

static void put_word(uint8_t *bytes, uint32_t word) { memcpy(bytes, &word, 4); }

#define EACH_BYTE 0x0101010101010101u // times a mask of eight bits: that mask for each byte

// Packs 32 numbers of four bits into 16 bytes. They are taken from bits shift ... shift + 3 of each input byte.
static void put_halves(const uint8_t *first, const uint8_t *second, int shift, uint8_t *to) {
  for (int i = 0; i < 16; i += 8) {
    const uint64_t low = words_at(first + i) >> shift & 15 * EACH_BYTE,
                   high = words_at(second + i) >> shift & 15 * EACH_BYTE, both = low | high << 4;
    memcpy(to + i, &both, 8);
  }
}

// In Q4_K and Q5_K, groups 2 i and 2 i + 1 are the low and the high four bits of the same 32 bytes.
static void put_pairs_of_groups(const uint8_t *halves, uint8_t *to) {
  for (int j = 0; j < 8; j++, to += 16) put_halves(halves + j / 2 * 32, halves + j / 2 * 32 + 16, j % 2 * 4, to);
}

// Of each byte of `words` words takes `width` bits, from bit `from` on. Those of word w go to bit width * w of the
// byte.
static uint32_t gather_bits(const uint8_t *bytes, int words, int from, int width) {
  const uint64_t mask = ((1u << width) - 1) * EACH_BYTE;
  uint64_t sum = 0; // of even words in its low half, of odd ones in its high half
  for (int w = 0; w < words; w += 2) sum |= (words_at(bytes + 4 * w) >> from & mask) << (width * w);
  return (uint32_t)sum | (uint32_t)(sum >> 32) << width;
}

static void tile_q8_0(const uint8_t *from, uint8_t *to) {
  for (int j = 0; j < 8; j++, from += 34) {
    memcpy(to + 2 * j, from, 2);
    memcpy(to + 16 + 32 * j, from + 2, 32);
  }
}

// Q4_0 and IQ4_NL.
static void tile_4_of_32(const uint8_t *from, uint8_t *to) {
  for (int j = 0; j < 8; j++, from += 18) {
    memcpy(to + 2 * j, from, 2);
    memcpy(to + 16 + 16 * j, from + 2, 16);
  }
}

static void tile_q5_0(const uint8_t *from, uint8_t *to) {
  for (int j = 0; j < 8; j++, from += 22) {
    uint32_t bits = 0;
    for (int c = 0; c < 4; c++) { // every fourth bit
      uint32_t x = word_at(from + 2) >> c & 0x11111111u;
      x = (x | x >> 3) & 0x03030303u;
      x = (x | x >> 6) & 0x000f000fu;
      bits |= ((x | x >> 12) & 0xffu) << (8 * c);
    }
    memcpy(to + 2 * j, from, 2);
    put_word(to + 16 + 4 * j, bits);
    memcpy(to + 48 + 16 * j, from + 6, 16);
  }
}

// Four scales and four minima, in bytes.
static uint32_t put_low_bits(uint32_t scales, uint32_t minima, uint8_t *to) {
  put_word(to, (scales & 0x0f0f0f0fu) | (minima & 0x0f0f0f0fu) << 4);
  uint32_t high = (scales >> 4 & 0x03030303u) | (minima >> 4 & 0x03030303u) << 2; // half a byte each
  high = (high | high >> 4) & 0x00ff00ffu;
  return (high | high >> 8) & 0xffff;
}

// Reorders the 12 bytes of scales and minima of Q4_K and Q5_K. decode_k (format.c) describes their order.
static void put_scales(const uint8_t *s, uint8_t *to) {
  const uint32_t scales = word_at(s), minima = word_at(s + 4), both = word_at(s + 8), two = 0x03030303u;
  const uint32_t first = put_low_bits(scales, minima, to);
  const uint32_t second = put_low_bits((both & 0x0f0f0f0fu) | (scales >> 6 & two) << 4,
                                       (both >> 4 & 0x0f0f0f0fu) | (minima >> 6 & two) << 4, to + 4);
  put_word(to + 8, first | second << 16);
}

static void tile_q4_k(const uint8_t *from, uint8_t *to) {
  memcpy(to, from, 4);
  put_scales(from + 4, to + 4);
  put_pairs_of_groups(from + 16, to + 16);
}

static void tile_q5_k(const uint8_t *from, uint8_t *to) {
  memcpy(to, from, 4);
  put_scales(from + 4, to + 4);
  for (int j = 0; j < 8; j++) put_word(to + 16 + 4 * j, gather_bits(from + 16, 8, j, 1));
  put_pairs_of_groups(from + 48, to + 48);
}

static void tile_q6_k(const uint8_t *from, uint8_t *to) {
  for (int j = 0; j < 8; j++) {
    const int half = j / 4, r = j % 4;
    const uint8_t *low = from + half * 64 + r % 2 * 32, *high = from + 128 + half * 32;
    memcpy(to + 4 * j, from + 192 + 2 * j, 2);
    memcpy(to + 4 * j + 2, from + 208, 2);
    for (int h = 0; h < 2; h++) put_word(to + 32 + 8 * j + 4 * h, gather_bits(high + 16 * h, 4, 2 * r, 2));
    put_halves(low, low + 16, r / 2 * 4, to + 96 + 16 * j);
  }
}

static void tile_iq4_xs(const uint8_t *from, uint8_t *to) {
  const uint32_t pairs = from[2] | (uint32_t)from[3] << 8;
  memset(to, 0, 16);
  memcpy(to, from, 2);
  for (int j = 0; j < 8; j++)
    to[4 + j] = (uint8_t)(((from[4 + j / 2] >> (j % 2 * 4) & 15u) | (pairs >> (2 * j) & 3) << 4) - 32);
  memcpy(to + 16, from + 8, 128);
}

void dtype_tile(enum dtype blocks, const void *from, uint64_t n, void *to) {
  static void (*const tile[])(const uint8_t *from, uint8_t *to) = {tile_q8_0, tile_4_of_32, tile_q5_0,    tile_q4_k,
                                                                   tile_q5_k, tile_q6_k,    tile_4_of_32, tile_iq4_xs};
  const uint64_t bytes = dtype_bytes(blocks, BLOCK_MOST), out = formats[dtype_tiled(blocks)].bytes;
  const uint8_t *b = from;
  uint8_t *t = to;
  for (; n >= BLOCK_MOST; n -= BLOCK_MOST, b += bytes, t += out) tile[blocks - DTYPE_BLOCKS](b, t);
  if (n) {
    uint8_t some[BLOCK_MOST * 2] = {0};
    memcpy(some, b, dtype_bytes(blocks, n));
    tile[blocks - DTYPE_BLOCKS](some, t);
  }
}
