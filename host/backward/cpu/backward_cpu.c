// backward_cpu: memory, sums and products of the backward pass on the CPU.
#include "backward_cpu.h"

float *back_room(struct walk *w, uint64_t floats) {
  const struct buffer *b = walk_room(w, floats);
  return b ? b->mapped : NULL;
}

// ---------------------------------------------------------------- sums

struct add_call {
  struct tensor to, from;
};

static void add_row(void *context, uint64_t row, uint32_t worker) {
  const struct add_call *a = context;
  (void)worker;
  float *to = f32_row(&a->to, row);
  const float *from = f32_row(&a->from, row); // maybe the same
  for (uint32_t i = 0; i < a->to.cols; i++) to[i] += from[i];
}

void back_add(struct walk *w, struct tensor to, struct tensor from) {
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

void back_add_rows(struct walk *w, struct tensor to, const float *from, uint64_t rows, uint64_t stride) {
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

struct tensor back_times(struct walk *w, struct tensor x, struct tensor matrix) {
  const struct tensor m = transposed(w, matrix);
  return m.buffer ? product(w, x, m) : m;
}

struct tensor back_outer(struct walk *w, struct tensor a, struct tensor b) {
  const struct tensor at = transposed(w, a), bt = transposed(w, b);
  return bt.buffer ? product(w, at, bt) : bt;
}
