// format.h: how numbers are stored: each format is a row of a table. A row of a tensor is whole blocks of its format.
#ifndef FORMAT_H
#define FORMAT_H
#include "numbers.h"

#include <stdint.h>

// Weights have one of the formats before DTYPE_I32, which kernels' variants are named after; activations are f32 or
// f16.
enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_I32 };
enum { BLOCK_MOST = 256 }; // numbers in the largest block

struct format {
  const char *name;
  uint32_t numbers, bytes;                                    // of a block
  void (*decode)(const void *blocks, uint64_t n, float *out); // n blocks, exactly; NULL: not numbers of weights
};
extern const struct format formats[];

static inline const char *dtype_name(enum dtype dtype) { return formats[dtype].name; }
// Of n numbers from a block's beginning on.
static inline uint64_t dtype_bytes(enum dtype dtype, uint64_t n) {
  const struct format *f = &formats[dtype];
  return f->numbers == 1 ? n * f->bytes : (n + f->numbers - 1) / f->numbers * f->bytes;
}
// Numbers first ... first + n - 1 of a row, as f32.
void dtype_decode(enum dtype dtype, const void *row, uint64_t first, uint64_t n, float *out);

// 16-bit floats and back, exact widening, round to nearest even.
float f16_to_f32(uint16_t h);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
uint16_t f32_to_bf16(float f);
#endif
