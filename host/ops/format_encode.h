// format_encode.h: numbers into storage formats, the reverse of a format's decoder.
#ifndef FORMAT_ENCODE_H
#define FORMAT_ENCODE_H
#include "format.h"

// The largest size of an element that every format stores: blocks have scales of f16. F32 and BF16 store any.
#define ENCODE_MOST 65504.0f

// Whether there is an encoder: of every format of weights.
bool dtype_encodes(enum dtype dtype);
// n elements, whole blocks, as blocks. They must be finite, and unless the format is F32 or BF16, at most ENCODE_MOST.
// Blocks get the scales of least square error that a search finds. If x is multiplied by a power of two, so are the
// scales, and nothing else changes, as long as scales stay normal numbers of f16.
void dtype_encode(enum dtype dtype, const float *x, uint64_t n, void *out);
#endif
