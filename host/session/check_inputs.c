// check_inputs: memory and random inputs of the lists that a device is checked with.
#include "check.h"
#include "format_encode.h"
#include "measure.h"

#include <stdlib.h>

struct tensor check_place(struct check *k, enum dtype dtype, uint32_t rows, uint32_t cols) {
  const bool weights = dtype != DTYPE_F32 && dtype != DTYPE_I32;
  struct tensor t = {.dtype = dtype,
                     .rows = rows,
                     .cols = cols,
                     .stride = weights ? (uint32_t)weight_stride(dtype, cols) : cols,
                     .buffer = &k->memory[k->side],
                     .offset = k->at};
  const uint64_t end = k->at + round_up(tensor_bytes(&t), TENSOR_ALIGN);
  if (end > k->memory[k->side].bytes && !k->status)
    k->status =
        fail(DELTAIC_INTERNAL, "the check needs more than %llu bytes", (unsigned long long)k->memory[k->side].bytes);
  k->at = k->status ? 0 : end;
  return t;
}

static void put(struct check *k, const struct tensor *t, const void *data) {
  struct backend *b = k->b[k->side];
  if (!k->status) k->status = b->functions->buffer_write(b, t->buffer, t->offset, data, tensor_bytes(t));
}

struct tensor check_words(struct check *k, uint32_t rows, uint32_t cols, const void *words) {
  const struct tensor t = check_place(k, DTYPE_I32, rows, cols);
  put(k, &t, words);
  return t;
}

struct tensor check_numbers(struct check *k, enum dtype dtype, uint32_t rows, uint32_t cols, float most) {
  const struct tensor t = check_place(k, dtype, rows, cols);
  const uint64_t n = (uint64_t)rows * t.stride;
  float *x = malloc(n * sizeof *x);
  void *data = malloc(tensor_bytes(&t));
  if (!x || !data) k->status = fail_memory("the check's inputs", n * sizeof *x);
  for (uint64_t i = 0; i < n && !k->status; i++) x[i] = most * measure_random(&k->random);
  if (!k->status) dtype_encode(dtype, x, n, data);
  put(k, &t, data);
  free(x);
  free(data);
  return t;
}

struct tensor check_output(struct check *k, struct tensor t) {
  k->out[k->outs++] = t;
  return t;
}
