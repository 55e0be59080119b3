// format.h: the table of storage formats. A row of a tensor consists of whole blocks of its format.
#ifndef FORMAT_H
#define FORMAT_H
#include "numbers.h"

#include <stdint.h>

// Weights have one of the formats before DTYPE_I32; each may have its own variant of a kernel. Activations are f32 or
// f16.
enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_I32 };
enum { BLOCK_MOST = 256 }; // elements in the largest block

struct format {
  const char *name;
  uint32_t elements, bytes;                                   // of one block
  void (*decode)(const void *blocks, uint64_t n, float *out); // decodes n blocks exactly; NULL: not a format of weights
};
extern const struct format formats[];

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
uint16_t f32_to_f16(float f);
uint16_t f32_to_bf16(float f);
#endif
