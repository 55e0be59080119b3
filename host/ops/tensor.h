// tensor.h: a view of rows x cols elements in a buffer; it owns nothing. Higher shapes are folded into cols, outermost
// first: a state (H, Dk, Dv) per slot has rows = slots, cols = H * Dk * Dv.
#ifndef TENSOR_H
#define TENSOR_H
#include "buffer.h"
#include "format.h"

struct tensor {
  enum dtype dtype;
  uint32_t rows, cols;
  uint32_t stride;       // elements from one row to the next, >= cols; weights: weight_stride(), with zeros beyond cols
  struct buffer *buffer; // NULL: absent (an optional bias, gate, ...), or a value
  uint32_t value;        // 1 + index of a value of a list (oplist.h) that is not placed yet; 0: none
  uint64_t offset;       // bytes; a multiple of 256
  bool wide;             // weights: some are outside the range of f16
  // A matrix of several formats: tensors of one format each, below each other, as many as give `rows`. The matrix's own
  // dtype, stride and buffer are then the first one's. NULL: all rows are here.
  const struct tensor *mixed;
  const struct low_factors *low; // op_linear() and op_embed() compute with w + B A; NULL: with w
};

// A (R, cols) and B (rows, R), which change a matrix w (rows, cols). f32, and f16 for fast lists or absent. A_turned
// (cols, R) is for op_embed(); absent: w is no embedding.
struct low_factors {
  struct tensor A, B, A_half, B_half, A_turned;
};

enum { TENSOR_ALIGN = 256 }; // bytes; no device needs a larger alignment of descriptors

// The stride of weights: whole blocks, and whole groups of the 8 elements that kernels read at once.
static inline uint64_t weight_stride(enum dtype dtype, uint64_t cols) {
  return round_up(cols, formats[dtype].elements > 8 ? formats[dtype].elements : 8);
}
// Bytes from the first element to the last; 0 if the tensor is absent or empty.
uint64_t tensor_bytes(const struct tensor *t);
// Rows first ... first + rows - 1; the byte offset must stay a multiple of TENSOR_ALIGN.
struct tensor tensor_rows(struct tensor t, uint32_t first, uint32_t rows);
// Columns first ... first + cols - 1 of every row; their byte offset must be a multiple of TENSOR_ALIGN (x of a glu:
// any).
struct tensor tensor_cols(struct tensor t, uint32_t first, uint32_t cols);
// Elements from one head's q or k to the next. In f16 each is padded with zeros to whole coopmat tiles.
static inline uint32_t key_pitch(enum dtype dtype, uint32_t Dk) {
  return dtype == DTYPE_F16 ? (Dk + 15) / 16 * 16 : Dk;
}
// The memory of an f32 tensor, viewed as rows of another dtype whose elements are no larger.
struct tensor tensor_as(struct tensor t, enum dtype dtype);
// Pointer to the first element of a row. The host must see the buffer (the CPU backend, control memory).
static inline void *tensor_row(const struct tensor *t, uint64_t row) {
  return (char *)t->buffer->mapped + t->offset + dtype_bytes(t->dtype, row * t->stride);
}
#endif
