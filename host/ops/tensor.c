// tensor: sizes and ranges of views.
#include "tensor.h"

uint64_t tensor_bytes(const struct tensor *t) {
  if (!t->buffer || !t->rows || !t->cols) return 0;
  return dtype_bytes(t->dtype, (uint64_t)(t->rows - 1) * t->stride + t->cols);
}

struct tensor tensor_rows(struct tensor t, uint32_t first, uint32_t rows) {
  t.offset += dtype_bytes(t.dtype, (uint64_t)first * t.stride);
  t.rows = rows;
  return t;
}

struct tensor tensor_as(struct tensor t, enum dtype dtype) {
  if (t.dtype == dtype) return t;
  uint64_t vectors = round_up(t.cols, 8); // kernels read rows in vectors of 8 if there is memory for them
  t.stride = dtype_bytes(dtype, vectors) <= dtype_bytes(t.dtype, t.stride) ? (uint32_t)vectors : t.cols;
  t.dtype = dtype;
  return t;
}

struct tensor tensor_cols(struct tensor t, uint32_t first, uint32_t cols) {
  t.offset += dtype_bytes(t.dtype, first);
  t.cols = cols;
  return t;
}
