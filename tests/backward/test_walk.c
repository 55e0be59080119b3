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

// ---------------------------------------------------------------- values in f16

enum { TEXT = 130, PARTS = 4 }; // gradients of x, of the norm's weight, and of the weights of two products

static bool is_infinite(struct tensor t) {
  bool found = false;
  for (uint32_t r = 0; r < t.rows; r++)
    for (uint32_t c = 0; c < t.cols; c++)
      found |= (((const uint16_t *)((const char *)t.buffer->mapped + t.offset))[r * t.stride + c] & 0x7fff) == 0x7c00;
  return found;
}

// The gradients of norm, product, gated unit and product, of widths `width` and F; on matrix units where `use` says so.
// Returns whether the norm's output, in f16, has an infinite number.
static bool block_gradients(struct backend *on, enum matrices use, uint32_t width, uint32_t F, float norm_weight,
                            double *got[PARTS]) {
  backend = on;
  const struct backend_functions *f = on->functions;
  const uint32_t stride = (width + 7) / 8 * 8, F_stride = (F + 7) / 8 * 8, sizes[] = {2 * F * stride, width * F_stride};
  struct buffer input = floats(TEXT * width, 0), norm = floats(width, norm_weight), dnorm = floats(width, 0);
  struct buffer weights[2], dweights[2], halves[2];
  struct tensor w[2], read[2];
  struct weight_half half[2];
  uint32_t seed = 1;
  for (uint32_t i = 0; i < TEXT * width; i++)
    ((float *)input.mapped)[i] = (float)((seed = seed * 1664525 + 1013904223) >> 8) / (1 << 23) - 1;
  for (int k = 0; k < 2; k++) {
    weights[k] = floats(sizes[k], 0), dweights[k] = floats(sizes[k], 0), halves[k] = floats(sizes[k], 0);
    w[k] = matrix(&weights[k], 0, k ? width : 2 * F, k ? F : width);
    w[k].stride = k ? F_stride : stride;
    for (uint32_t r = 0; r < w[k].rows; r++)
      for (uint32_t c = 0; c < w[k].cols; c++)
        f32_row(&w[k], r)[c] = (float)((seed = seed * 1664525 + 1013904223) >> 24) / 512 - 0.25f; // of f16 too
    read[k] = w[k];
    read[k].buffer = &halves[k];
    read[k].dtype = DTYPE_F16;
    half[k] = (struct weight_half){read[k], w[k]};
    if (!use) read[k] = w[k];
  }
  struct oplist list = {0};
  oplist_begin(&list);
  list.keep = list.plain = true;
  list.matrices = use;
  const struct tensor none = {0}, x = oplist_value(&list, TEXT, width), h = oplist_value(&list, TEXT, width);
  const struct tensor both = oplist_value(&list, TEXT, 2 * F), act = oplist_value(&list, TEXT, F);
  const struct tensor y = oplist_value(&list, TEXT, width), norm_w = matrix(&norm, 0, 1, width);
  op_copy(&list, x, matrix(&input, 0, TEXT, width));
  op_norm(&list, h, x, norm_w, none, 1e-5f);
  op_linear(&list, both, h, read[0], none);
  op_glu(&list, act, tensor_cols(both, 0, F), tensor_cols(both, F, F), ACTIVATION_SILU);
  op_linear(&list, y, act, read[1], none);
  uint64_t largest;
  const uint64_t n = f->list_bytes(on, &list, &largest) / sizeof(float);
  struct buffer values = floats(n, NAN), gradients = floats(n, NAN);
  list.scratch = matrix(&values, 0, 1, (uint32_t)n);
  struct weight_gradient of[] = {{&norm_w, matrix(&dnorm, 0, 1, width)}, {&w[0], w[0]}, {&w[1], w[1]}};
  of[1].gradient.buffer = &dweights[0], of[2].gradient.buffer = &dweights[1];
  struct walk walk = {.functions = walk_functions(on),
                      .list = &list,
                      .values = &values,
                      .gradients = &gradients,
                      .weights = of,
                      .weight_count = 3,
                      .halves = half,
                      .half_count = use ? 2 : 0};
  assert_ok(f->recorder_create(on, &walk.c));
  f->recorder_begin(walk.c, false, NULL);
  for (int k = 0; k < 2 && use; k++) walk.functions->round(&walk, half[k].half, w[k]);
  f->recorder_list(walk.c, &list);
  assert_int_equal(list.values[h.value - 1].dtype, use && width >= 4 ? DTYPE_F16 : DTYPE_F32);
  assert_int_equal(list.values[act.value - 1].dtype, use && F >= 4 ? DTYPE_F16 : DTYPE_F32);
  const struct tensor dy = walk_gradient(&walk, oplist_tensor(&list, y));
  for (uint32_t i = 0; i < TEXT * width; i++)
    f32_row(&dy, 0)[i] = (float)((seed = seed * 1664525 + 1013904223) >> 8) / (1 << 23) - 1;
  assert_ok(walk_back(&walk));
  assert_ok(f->recorder_run(walk.c));
  const struct tensor parts[PARTS] = {walk_gradient(&walk, oplist_tensor(&list, x)), of[0].gradient, of[1].gradient,
                                      of[2].gradient};
  for (int k = 0; k < PARTS; k++)
    for (uint32_t r = 0; r < parts[k].rows; r++)
      for (uint32_t c = 0; c < parts[k].cols; c++) got[k][r * parts[k].cols + c] = f32_row(&parts[k], r)[c];
  const struct tensor normed = oplist_tensor(&list, h);
  const bool infinite = normed.dtype == DTYPE_F16 && is_infinite(normed);
  walk_free(&walk);
  f->recorder_free(walk.c);
  oplist_free(&list);
  struct buffer *const all[] = {&input,       &norm,      &dnorm,     &weights[0], &weights[1], &dweights[0],
                                &dweights[1], &halves[0], &halves[1], &values,     &gradients};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) f->buffer_free(on, all[i]);
  return infinite;
}

// Widths whose rows end within a vector, or have no room for rows of f16. What exceeds f16's range is infinite.
static void norms_and_gated_units_match_in_f16(deltaic_device *device) {
  static const uint32_t sizes[][2] = {{64, 48}, {52, 36}, {35, 21}, {9, 5}, {3, 2}};
  enum { MOST_WIDTH = 64 };
  const struct walk_functions *functions = walk_functions(device->backend);
  if (!functions->rounds || !functions->rounds(device->backend)) return;
  struct backend *cpu;
  double *got[2][PARTS];
  assert_ok(backend_open_cpu(2, &cpu));
  for (int k = 0; k < 2 * PARTS; k++) got[k / PARTS][k % PARTS] = calloc(TEXT * 2 * MOST_WIDTH, sizeof(double));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const uint32_t width = sizes[i][0], F = sizes[i][1],
                   counts[PARTS] = {TEXT * width, width, 2 * F * width, width * F};
    block_gradients(cpu, MATRICES_NONE, width, F, 1, got[0]);
    assert_false(block_gradients(device->backend, MATRICES_BEST, width, F, 1, got[1]));
    for (int k = 0; k < PARTS; k++) {
      double error = 0, norm = 0;
      for (uint32_t n = 0; n < counts[k]; n++) {
        error += pow(got[1][k][n] - got[0][k][n], 2);
        norm += got[0][k][n] * got[0][k][n];
      }
      if (!(sqrt(error / norm) <= 5e-3)) fail_msg("%u, %u, gradient %d: %.1e", width, F, k, sqrt(error / norm));
    }
  }
  assert_true(block_gradients(device->backend, MATRICES_BEST, 64, 48, 1e6f, got[1]));
  for (int k = 0; k < 2 * PARTS; k++) free(got[k / PARTS][k % PARTS]);
  cpu->functions->close(cpu);
}

int main(void) {
  const struct CMUnitTest tests[] = {device_test(gradients_of_sums_and_columns_are_right),
                                     device_test(norms_and_gated_units_match_in_f16)};
  cmocka_set_test_filter(getenv("DELTAIC_TEST_FILTER"));
  return cmocka_run_group_tests(tests, NULL, NULL);
}
