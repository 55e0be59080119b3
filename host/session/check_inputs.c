// check_inputs: memory and random inputs of the lists that a device is checked with.
#include "check.h"
#include "format_encode.h"
#include "measure.h"

#include <stdlib.h>

// The same matrix as a backend stores it that wants tiles.
static struct tensor as_tiles(struct tensor t) {
  t.dtype = dtype_tiled(t.dtype);
  t.stride = (uint32_t)weight_stride(t.dtype, t.stride);
  return t;
}

struct tensor check_place(struct check *k, enum dtype dtype, uint32_t rows, uint32_t cols) {
  const bool weights = dtype != DTYPE_F32 && dtype != DTYPE_I32;
  struct tensor t = {.dtype = dtype,
                     .rows = rows,
                     .cols = cols,
                     .stride = weights ? (uint32_t)weight_stride(dtype, cols) : cols,
                     .buffer = &k->memory[k->side],
                     .offset = k->at};
  struct tensor tiles = dtype_is_blocks(dtype) ? as_tiles(t) : t;
  const uint64_t bytes = tensor_bytes(&t), of_tiles = tensor_bytes(&tiles);
  const uint64_t end = k->at + round_up(bytes > of_tiles ? bytes : of_tiles, TENSOR_ALIGN);
  if (end > k->memory[k->side].bytes && !k->status)
    k->status =
        fail(DELTAIC_INTERNAL, "the check needs more than %llu bytes", (unsigned long long)k->memory[k->side].bytes);
  k->at = k->status ? 0 : end;
  return t;
}

static void put(struct check *k, const struct tensor *t, const void *data) {
  struct backend *b = k->b[k->side];
  if (!k->status && !k->compiles)
    k->status = b->functions->buffer_write(b, t->buffer, t->offset, data, tensor_bytes(t));
}

struct tensor check_tiles(struct check *k, struct tensor t, const void *blocks) {
  const struct tensor to = as_tiles(t);
  const uint64_t row = dtype_bytes(t.dtype, t.stride), pitch = dtype_bytes(to.dtype, to.stride);
  char *tiles = malloc(t.rows * pitch);
  if (!tiles) k->status = fail_memory("the check's inputs", t.rows * pitch);
  for (uint32_t i = 0; i < t.rows && !k->status; i++)
    dtype_tile(t.dtype, (const char *)blocks + i * row, t.stride, tiles + i * pitch);
  put(k, &to, tiles);
  free(tiles);
  return to;
}

struct tensor check_words(struct check *k, uint32_t rows, uint32_t cols, const void *words) {
  const struct tensor t = check_place(k, DTYPE_I32, rows, cols);
  put(k, &t, words);
  return t;
}

struct encoding {
  const struct tensor *t;
  const float *x;
  char *data;
};

static void encode_row(void *context, uint64_t row, uint32_t worker) {
  (void)worker;
  const struct encoding *e = context;
  const uint64_t n = e->t->stride;
  dtype_encode(e->t->dtype, e->x + row * n, n, e->data + row * dtype_bytes(e->t->dtype, n));
}

static void make_numbers(struct check *k, const struct tensor *t, float most, char *data) {
  const uint64_t n = (uint64_t)t->rows * t->stride;
  float *x = malloc(n * sizeof *x);
  if (!x) k->status = fail_memory("the check's inputs", n * sizeof *x);
  for (uint64_t i = 0; i < n && x; i++) x[i] = most * measure_random(&k->random);
  if (x) pool_run(k->pool, t->rows, encode_row, &(struct encoding){t, x, data});
  free(x);
}

struct tensor check_numbers(struct check *k, enum dtype dtype, uint32_t rows, uint32_t cols, float most) {
  const struct tensor t = check_place(k, dtype, rows, cols);
  const bool tiles = dtype_is_blocks(dtype) && k->b[k->side]->tiles;
  if (k->compiles || k->status) return tiles ? as_tiles(t) : t;
  char *data = k->inputs + (t.offset - k->begin);
  if (!k->made) make_numbers(k, &t, most, data);
  if (tiles) return check_tiles(k, t, data);
  put(k, &t, data);
  return t;
}

struct tensor check_output(struct check *k, struct tensor t) {
  k->out[k->outs++] = t;
  return t;
}
