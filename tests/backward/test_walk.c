// test_walk: where a walk keeps gradients. Lists have only products and sums, so the gradient is the product of their
// matrices. Some have sums whose terms share a gradient, others views of one value's columns. Memory begins as NaN.
#include "backward.h"
#include "cpu_backend.h"
#include "device_handle.h"
#include "devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 5, D = 64, MOST = 6, WIDE = 3 * D }; // a view begins at a multiple of TENSOR_ALIGN bytes

// The value `out` is a linear map of columns first ... first + D - 1 of value a, or, without a map, the sum of a and b.
// Value 0 is x. wide: all WIDE columns are made.
struct step {
  int a, b;
  bool map, wide;
  uint32_t first;
};
#define MAP(in)                                                                                                        \
  { .a = in, .map = true }
#define MAP_WIDE(in)                                                                                                   \
  { .a = in, .map = true, .wide = true }
#define MAP_OF(in, from)                                                                                               \
  { .a = in, .map = true, .first = from }
#define SUM(one, other)                                                                                                \
  { .a = one, .b = other }

static const struct graph {
  const char *name;
  int count;
  struct step steps[MOST];
} graphs[] = {
    {"a residual block", 4, {MAP(0), SUM(0, 1), MAP(2), SUM(2, 3)}},
    {"the stream second", 4, {MAP(0), SUM(1, 0), MAP(2), SUM(3, 2)}},
    {"branches side by side, the last made first", 4, {MAP(0), MAP(0), SUM(0, 2), SUM(3, 1)}},
    {"the same with the terms exchanged", 4, {MAP(0), MAP(0), SUM(2, 0), SUM(1, 3)}},
    {"one value twice", 2, {MAP(0), SUM(1, 1)}},
    {"a term that is read twice", 3, {MAP(0), SUM(0, 1), SUM(2, 1)}},
    {"a term that is made of the other", 3, {MAP(0), MAP(1), SUM(1, 2)}},
    {"a term that a map reads too", 5, {MAP(0), MAP(0), MAP(2), SUM(1, 2), SUM(3, 4)}},
    {"the sum is of x itself", 2, {SUM(0, 0), MAP(1)}},
    {"three sums in a row", 5, {MAP(0), MAP(0), SUM(1, 2), SUM(0, 3), SUM(4, 3)}},
    {"all columns of a value", 6, {MAP_WIDE(0), MAP_OF(1, 0), MAP_OF(1, D), MAP_OF(1, 2 * D), SUM(2, 3), SUM(5, 4)}},
    {"some columns of a value", 4, {MAP_WIDE(0), MAP_OF(1, 0), MAP_OF(1, 2 * D), SUM(2, 3)}},
    {"columns that two read", 6, {MAP_WIDE(0), MAP_OF(1, 0), MAP_OF(1, 0), MAP_OF(1, D), SUM(2, 3), SUM(5, 4)}},
};

static struct backend *backend;

static struct buffer floats(uint64_t n, float value) {
  struct buffer b;
  assert_ok(backend->functions->buffer_create(backend, MEMORY_SHARED, n * sizeof(float), "a test", &b));
  for (uint64_t i = 0; i < n; i++) ((float *)b.mapped)[i] = value;
  return b;
}

static struct tensor matrix(struct buffer *b, uint64_t at, uint32_t rows, uint32_t cols) {
  return (struct tensor){.rows = rows, .cols = cols, .stride = cols, .buffer = b, .offset = at * sizeof(float)};
}

struct made {
  struct oplist list;
  struct tensor values[MOST + 1];
  double by_x[MOST + 1][D][WIDE]; // value[t][j] = sum over i of x[t][i] by_x[i][j]
};

static void record(struct made *m, const struct graph *g, struct tensor x, struct buffer *weights) {
  m->values[0] = oplist_value(&m->list, T, D);
  op_copy(&m->list, m->values[0], x);
  for (int i = 0; i < D; i++) m->by_x[0][i][i] = 1;
  for (int k = 0; k < g->count; k++) {
    const struct step s = g->steps[k];
    const uint32_t cols = s.wide ? WIDE : D;
    const struct tensor y = m->values[k + 1] = oplist_value(&m->list, T, cols);
    struct tensor from = m->values[s.a];
    if (!s.map) op_add(&m->list, y, from, m->values[s.b]);
    if (s.map) {
      const struct tensor w = matrix(weights, (uint64_t)k * WIDE * D, cols, D), none = {0};
      from = tensor_cols(from, s.first, D);
      op_linear(&m->list, y, from, w, none);
      for (uint32_t i = 0; i < D; i++)
        for (uint32_t j = 0; j < cols; j++)
          for (uint32_t n = 0; n < D; n++)
            m->by_x[k + 1][i][j] += m->by_x[s.a][i][s.first + n] * (double)f32_row(&w, j)[n];
    }
    for (uint32_t i = 0; i < D && !s.map; i++)
      for (uint32_t j = 0; j < D; j++) m->by_x[k + 1][i][j] = m->by_x[s.a][i][j] + m->by_x[s.b][i][j];
  }
}

static void check(const struct graph *g) {
  const struct backend_functions *f = backend->functions;
  struct made *m = calloc(1, sizeof *m);
  struct walk w = {.functions = walk_functions(backend), .list = &m->list};
  struct buffer weights = floats(MOST * WIDE * D, 0), input = floats(T * D, 0);
  uint32_t seed = 1;
  for (uint32_t i = 0; i < MOST * WIDE * D; i++)
    ((float *)weights.mapped)[i] = (float)((seed = seed * 1664525 + 1013904223) >> 8) / (1 << 26) - 0.125f;
  oplist_begin(&m->list);
  m->list.keep = m->list.plain = true;
  record(m, g, matrix(&input, 0, T, D), &weights);
  uint64_t largest;
  const uint64_t n = f->list_bytes(backend, &m->list, &largest) / sizeof(float);
  struct buffer values = floats(n, NAN), gradients = floats(n, NAN);
  m->list.scratch = matrix(&values, 0, 1, (uint32_t)n);
  w.values = &values;
  w.gradients = &gradients;
  assert_ok(f->recorder_create(backend, &w.c));
  f->recorder_begin(w.c, false, NULL);
  f->recorder_list(w.c, &m->list);
  const struct tensor y = walk_gradient(&w, oplist_tensor(&m->list, m->values[g->count]));
  for (uint32_t i = 0; i < T * y.cols; i++)
    f32_row(&y, 0)[i] = (float)((seed = seed * 1664525 + 1013904223) >> 8) / (1 << 23) - 1;
  float dy[T * D];
  memcpy(dy, f32_row(&y, 0), sizeof dy);
  assert_ok(walk_back(&w));
  assert_ok(f->recorder_run(w.c));
  const struct tensor dx = walk_gradient(&w, oplist_tensor(&m->list, m->values[0]));
  double error = 0, norm = 0;
  for (uint32_t t = 0; t < T; t++)
    for (uint32_t i = 0; i < D; i++) {
      double want = 0;
      for (uint32_t j = 0; j < D; j++) want += dy[t * D + j] * m->by_x[g->count][i][j];
      error += (f32_row(&dx, t)[i] - want) * (f32_row(&dx, t)[i] - want);
      norm += want * want;
    }
  if (!(sqrt(error / norm) <= 1e-6)) fail_msg("%s: %.1e", g->name, sqrt(error / norm));
  walk_free(&w);
  f->recorder_free(w.c);
  oplist_free(&m->list);
  struct buffer *const all[] = {&weights, &input, &values, &gradients};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) f->buffer_free(backend, all[i]);
  free(m);
}

static void gradients_of_sums_and_columns_are_right(deltaic_device *device) {
  backend = device->backend;
  for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) check(&graphs[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {device_test(gradients_of_sums_and_columns_are_right)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
