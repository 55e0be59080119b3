// format.h: the table of storage formats. A row of a tensor consists of whole blocks of its format.
#ifndef FORMAT_H
#define FORMAT_H
#include "numbers.h"
#include "status.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// A float with these bits, and the bits of a float.
static inline float float_of(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
static inline uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

// Weights have one of the formats before DTYPE_I32. From DTYPE_BLOCKS on these are blocks of integers with common
// scales, as in GGUF; from DTYPE_TILES on, tiles of them. One variant of a kernel reads all tiles. Activations are f32
// or f16.
enum dtype {
  DTYPE_F32,
  DTYPE_F16,
  DTYPE_BF16,
  DTYPE_BLOCKS,
  DTYPE_Q8_0 = DTYPE_BLOCKS,
  DTYPE_Q4_0,
  DTYPE_Q5_0,
  DTYPE_Q4_K,
  DTYPE_Q5_K,
  DTYPE_Q6_K,
  DTYPE_IQ4_NL,
  DTYPE_IQ4_XS,
  DTYPE_TILES, // the same formats as GPUs store them (format_tiles.c), in the same order
  DTYPE_TILED_Q8_0 = DTYPE_TILES,
  DTYPE_TILED_Q4_0,
  DTYPE_TILED_Q5_0,
  DTYPE_TILED_Q4_K,
  DTYPE_TILED_Q5_K,
  DTYPE_TILED_Q6_K,
  DTYPE_TILED_IQ4_NL,
  DTYPE_TILED_IQ4_XS,
  DTYPE_I32,
};
enum { BLOCK_MOST = 256 }; // elements in the largest block, and in a tile

struct format {
  const char *name;
  uint32_t elements, bytes; // of one block
  void (*decode)(const void *blocks, uint64_t n,
                 float *out); // decodes n blocks exactly; NULL: tiles and i32
  // The f16 scales of a block: no element is larger than the sum of |scale| * most. most 0: no scale.
  struct {
    uint16_t at; // byte in the block
    float most;
  } scales[2];
};
extern const struct format formats[];

static inline bool dtype_is_blocks(enum dtype dtype) { return dtype >= DTYPE_BLOCKS && dtype < DTYPE_TILES; }
static inline bool dtype_is_tiles(enum dtype dtype) { return dtype >= DTYPE_TILES && dtype < DTYPE_I32; }
// The format of tiles for blocks, and the other way round; every other format is its own.
static inline enum dtype dtype_tiled(enum dtype dtype) {
  return dtype_is_blocks(dtype) ? (enum dtype)(dtype - DTYPE_BLOCKS + DTYPE_TILES) : dtype;
}
static inline enum dtype dtype_untiled(enum dtype dtype) {
  return dtype_is_tiles(dtype) ? (enum dtype)(dtype - DTYPE_TILES + DTYPE_BLOCKS) : dtype;
}
// Makes tiles of n elements in blocks; zeros fill the last tile. Changes the order of bits only.
void dtype_tile(enum dtype blocks, const void *from, uint64_t n, void *to);
// A bound of the elements of n blocks; NaN or infinity if a scale is.
float dtype_blocks_bound(enum dtype dtype, const void *blocks, uint64_t n);

static inline const char *dtype_name(enum dtype dtype) { return formats[dtype].name; }
// Bytes of n elements, starting at the beginning of a block.
static inline uint64_t dtype_bytes(enum dtype dtype, uint64_t n) {
  const struct format *f = &formats[dtype];
  return f->elements == 1 ? n * f->bytes : (n + f->elements - 1) / f->elements * f->bytes;
}
// Decodes elements first ... first + n - 1 of a row to f32.
void dtype_decode(enum dtype dtype, const void *row, uint64_t first, uint64_t n, float *out);

// Conversions of 16-bit floats. Widening is exact; narrowing rounds to nearest even.
float f16_to_f32(uint16_t h);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f) INSIDE(f32_to_f16);
uint16_t f32_to_bf16(float f) INSIDE(f32_to_bf16);
#endif
