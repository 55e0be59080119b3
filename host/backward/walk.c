// walk: memory, gradients, sums and products of a walk in reverse, and the backward pass of a product with weights.
#include "backward.h"

#include <stdlib.h>

void walk_free(struct walk *w) {
  for (uint32_t i = 0; i < WALK_ROOMS; i++) free(w->rooms[i].data);
  memset(w->rooms, 0, sizeof w->rooms);
}

// ---------------------------------------------------------------- memory

// Rooms keep their memory, so that equal layers allocate once.
float *walk_room(struct walk *w, uint64_t floats) {
  if (w->status) return NULL;
  assert(w->used < WALK_ROOMS);
  const uint32_t i = w->used++;
  if (w->rooms[i].floats < floats || !w->rooms[i].data) {
    free(w->rooms[i].data);
    w->rooms[i].data = floats < SIZE_MAX / sizeof(float) ? malloc((floats + 1) * sizeof(float)) : NULL;
    w->rooms[i].floats = w->rooms[i].data ? floats : 0;
  }
  if (!w->rooms[i].data) w->status = fail_memory("a backward pass", floats * sizeof(float));
  return w->rooms[i].data;
}

struct tensor walk_tensor(struct walk *w, uint32_t rows, uint32_t cols, uint32_t stride) {
  float *data = walk_room(w, (uint64_t)rows * stride);
  if (!data) return (struct tensor){0};
  struct buffer *b = &w->wrapped[w->used - 1];
  *b = (struct buffer){.bytes = (uint64_t)rows * stride * sizeof(float), .mapped = data};
  return (struct tensor){.dtype = DTYPE_F32, .rows = rows, .cols = cols, .stride = stride, .buffer = b};
}

static struct tensor moved(struct tensor t, struct buffer *to) {
  t.buffer = to->mapped ? to : NULL;
  return t;
}

struct tensor walk_gradient(const struct walk *w, struct tensor t) {
  const struct tensor none = {0};
  if (!t.buffer) return none;
  if (t.buffer == w->values) return moved(t, w->gradients);
  if (t.buffer == w->states) return moved(t, w->state_gradients);
  for (size_t i = 0; i < w->weight_count; i++)
    if (w->weights[i].weight->buffer == t.buffer && w->weights[i].weight->offset == t.offset)
      return w->weights[i].gradient;
  return none;
}

struct tensor walk_before(const struct walk *w, struct tensor t) {
  assert(t.buffer == w->states);
  return moved(t, w->before);
}

// ---------------------------------------------------------------- sums

struct add_call {
  struct tensor to, from;
};

static void add_row(void *context, uint64_t row, uint32_t worker) {
  const struct add_call *a = context;
  (void)worker;
  float *restrict to = f32_row(&a->to, row);
  const float *restrict from = f32_row(&a->from, row);
  for (uint32_t i = 0; i < a->to.cols; i++) to[i] += from[i];
}

void walk_add(struct walk *w, struct tensor to, struct tensor from) {
  if (w->status || !to.buffer) return;
  assert(to.rows == from.rows && to.cols == from.cols);
  cpu_parallel(w->c, to.rows, (uint64_t)to.rows * to.cols, add_row, &(struct add_call){to, from});
}

enum { COLUMNS = 64 }; // of one task of a sum over rows

struct rows_call {
  float *to;
  const float *from;
  uint64_t rows, stride;
  uint32_t cols;
};

static void add_columns(void *context, uint64_t index, uint32_t worker) {
  const struct rows_call *r = context;
  (void)worker;
  const uint32_t first = (uint32_t)index * COLUMNS, n = r->cols - first < COLUMNS ? r->cols - first : COLUMNS;
  double sum[COLUMNS] = {0};
  for (uint64_t t = 0; t < r->rows; t++)
    for (uint32_t i = 0; i < n; i++) sum[i] += r->from[t * r->stride + first + i];
  for (uint32_t i = 0; i < n; i++) r->to[first + i] += (float)sum[i];
}

void walk_add_rows(struct walk *w, struct tensor to, const float *from, uint64_t rows, uint64_t stride) {
  if (w->status || !to.buffer) return;
  struct rows_call r = {f32_row(&to, 0), from, rows, stride, to.cols};
  cpu_parallel(w->c, (to.cols + COLUMNS - 1) / COLUMNS, rows * to.cols, add_columns, &r);
}

// ---------------------------------------------------------------- products

enum { TILE = 32 };

struct transpose_call {
  struct tensor to, from;
};

// Rows TILE * index ... of `to`, with zeros up to its stride.
static void transpose_rows(void *context, uint64_t index, uint32_t worker) {
  const struct transpose_call *t = context;
  (void)worker;
  const uint32_t first = (uint32_t)index * TILE, last = t->to.rows - first < TILE ? t->to.rows : first + TILE;
  for (uint32_t j = 0; j < t->to.cols; j += TILE)
    for (uint32_t i = first; i < last; i++) {
      float *to = f32_row(&t->to, i);
      for (uint32_t k = j; k < t->to.cols && k < j + TILE; k++) to[k] = f32_row(&t->from, k)[i];
    }
  for (uint32_t i = first; i < last; i++)
    for (uint32_t k = t->to.cols; k < t->to.stride; k++) f32_row(&t->to, i)[k] = 0;
}

static struct tensor transposed(struct walk *w, struct tensor from) {
  const struct tensor to = walk_tensor(w, from.cols, from.rows, (uint32_t)round_up(from.rows, 8));
  if (to.buffer)
    cpu_parallel(w->c, (to.rows + TILE - 1) / TILE, (uint64_t)to.rows * to.cols, transpose_rows,
                 &(struct transpose_call){to, from});
  return to;
}

// y = x m^T
static struct tensor product(struct walk *w, struct tensor x, struct tensor m) {
  const struct tensor none = {0}, y = walk_tensor(w, x.rows, m.rows, m.rows);
  if (y.buffer) cpu_linear(w->c, &(struct linear){y, x, m, none}, none);
  return y;
}

struct tensor walk_times(struct walk *w, struct tensor x, struct tensor matrix) {
  const struct tensor m = transposed(w, matrix);
  return m.buffer ? product(w, x, m) : m;
}

struct tensor walk_outer(struct walk *w, struct tensor a, struct tensor b) {
  const struct tensor at = transposed(w, a), bt = transposed(w, b);
  return bt.buffer ? product(w, at, bt) : bt;
}

void backward_linear(struct walk *w, const struct linear *op) {
  const struct tensor dy = walk_gradient(w, op->y), dx = walk_gradient(w, op->x), dw = walk_gradient(w, op->w);
  if (dx.buffer) walk_add(w, dx, walk_times(w, dy, op->w));
  if (dw.buffer) walk_add(w, dw, walk_outer(w, dy, op->x));
  walk_add_rows(w, walk_gradient(w, op->bias), f32_row(&dy, 0), dy.rows, dy.stride);
}
