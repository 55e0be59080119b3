// tensor.h: a view of rows x cols numbers in a buffer; it owns nothing. Higher shapes are folded into cols, outermost
// first: a state (H, Dk, Dv) per sequence is rows = sequences, cols = H * Dk * Dv.
#ifndef TENSOR_H
#define TENSOR_H
#include "buffer.h"
#include "format.h"

struct tensor {
  enum dtype dtype;
  uint32_t rows, cols;
  uint32_t stride;       // numbers from one row to the next, >= cols; weights: see weight_stride(), zeros beyond cols
  struct buffer *buffer; // NULL: absent (an optional bias, gate, ...), or a value
  uint32_t value;        // 1 + index of a value of a list (oplist.h), whose place is not known yet; 0: none
  uint64_t offset;       // bytes; a multiple of 256
  bool wide;             // weights: some are beyond the numbers of f16
};

enum { TENSOR_ALIGN = 256 }; // bytes: no device asks for more at the start of a descriptor

// The stride of weights: whole blocks, and whole groups of the 8 numbers that kernels read at once.
static inline uint64_t weight_stride(enum dtype dtype, uint64_t cols) {
  return round_up(cols, formats[dtype].numbers > 8 ? formats[dtype].numbers : 8);
}
// Bytes from the first element to the last; 0 when absent or empty.
uint64_t tensor_bytes(const struct tensor *t);
// Rows first ... first + rows - 1; the byte offset must stay a multiple of TENSOR_ALIGN.
struct tensor tensor_rows(struct tensor t, uint32_t first, uint32_t rows);
// Columns first ... first + cols - 1 of every row; first * size must be a multiple of TENSOR_ALIGN.
struct tensor tensor_cols(struct tensor t, uint32_t first, uint32_t cols);
// Numbers from a head's q or k to the next: as f16 they are whole tiles of cooperative matrices, with zeros at the end.
static inline uint32_t key_pitch(enum dtype dtype, uint32_t Dk) {
  return dtype == DTYPE_F16 ? (Dk + 15) / 16 * 16 : Dk;
}
// An f32 tensor's room, for rows of another dtype of at most its size.
struct tensor tensor_as(struct tensor t, enum dtype dtype);
// Pointer to the first element of a row where the host can see the buffer (the CPU backend, control memory).
static inline void *tensor_row(const struct tensor *t, uint64_t row) {
  return (char *)t->buffer->mapped + t->offset + dtype_bytes(t->dtype, row * t->stride);
}
#endif
