// measure_matmul: measures one product of matrices as a layer runs it: many in a row, each waiting for the one before
// and with weights that are not in a cache. The last one's results are compared with float64. It also measures how fast
// the device multiplies matrices at all.
#include "arena.h"
#include "device_handle.h"
#include "measure.h"
#include "option_structs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COPIES = 64, DECODED = 64 };    // DECODED: so many rows are a decoding step of a batch; more are a prompt
static const uint64_t FRESH = 1 << 20;      // random inputs; the others repeat them, since the device idles meanwhile
static const double MOST_OPERATIONS = 1e12; // most in a recording: a slow GPU's driver may time out

struct measurement {
  struct backend *b;
  struct recorder *c;
  bool awake; // as of the device
  deltaic_matmul o;
  struct oplist list;
  struct arena arena;
  struct tensor x, y, w[MOST_COPIES]; // all w are equal
  uint32_t copies, products;          // products: in a recording
  uint16_t *weights;                  // bf16
  float *inputs;                      // rounded to f16 if the device reads f16
};

// The dtype in which a layer would pass this many rows to a product with w.
static enum dtype input_dtype(struct backend *b, struct oplist *l, struct tensor w, uint32_t rows) {
  uint64_t largest;
  oplist_begin(l);
  const struct tensor x = oplist_value(l, rows, w.cols), both = oplist_value(l, rows, 2 * w.cols);
  op_glu(l, x, tensor_cols(both, 0, w.cols), tensor_cols(both, w.cols, w.cols), ACTIVATION_SILU);
  op_linear(l, oplist_value(l, rows, w.rows), x, w, (struct tensor){0});
  b->functions->list_bytes(b, l, &largest);
  return l->status ? DTYPE_F32 : oplist_tensor(l, x).dtype;
}

static void list_products(struct measurement *m, struct recorder *c) {
  oplist_begin(&m->list);
  for (uint32_t i = 0; i < m->products; i++) op_linear(&m->list, m->y, m->x, m->w[i % m->copies], (struct tensor){0});
  m->b->functions->recorder_list(c, &m->list);
}

static void record(struct measurement *m) {
  m->b->functions->recorder_begin(m->c, true, NULL);
  list_products(m, m->c);
}

static deltaic_status run(struct measurement *m) {
  if (!m->b->replays) record(m);
  return m->b->functions->recorder_run(m->c);
}

// ---------------------------------------------------------------- inputs

static deltaic_status fill(struct measurement *m) {
  const deltaic_matmul *o = &m->o;
  const uint64_t weights = (uint64_t)o->outputs * o->inputs, inputs = (uint64_t)o->rows * o->inputs;
  const struct backend_functions *functions = m->b->functions;
  uint32_t random = 1;
  m->weights = malloc(weights * sizeof *m->weights);
  m->inputs = malloc(inputs * sizeof *m->inputs);
  uint16_t *narrow = malloc(inputs * sizeof *narrow);
  deltaic_status status =
      m->weights && m->inputs && narrow ? DELTAIC_OK : fail_memory("a product's inputs", 2 * weights + 6 * inputs);
  for (uint64_t i = 0; i < weights && !status; i++) m->weights[i] = f32_to_bf16(measure_random(&random));
  for (uint64_t i = 0; i < inputs && i < FRESH && !status; i++) {
    m->inputs[i] = measure_random(&random);
    narrow[i] = f32_to_f16(m->inputs[i]);
    if (m->x.dtype == DTYPE_F16) m->inputs[i] = f16_to_f32(narrow[i]);
  }
  for (uint64_t i = FRESH; i < inputs && !status; i += FRESH) {
    const uint64_t n = inputs - i < FRESH ? inputs - i : FRESH;
    memcpy(m->inputs + i, m->inputs, n * sizeof *m->inputs);
    memcpy(narrow + i, narrow, n * sizeof *narrow);
  }
  for (uint32_t i = 0; i < m->copies && !status; i++)
    status = functions->buffer_write(m->b, m->w[i].buffer, m->w[i].offset, m->weights, weights * sizeof *m->weights);
  if (!status)
    status =
        functions->buffer_write(m->b, m->x.buffer, m->x.offset, m->x.dtype == DTYPE_F16 ? (void *)narrow : m->inputs,
                                dtype_bytes(m->x.dtype, inputs));
  free(narrow);
  return status;
}

// Allocates so many weights that no cache holds them, if reading them takes most of the time.
static deltaic_status allocate(struct measurement *m) {
  const deltaic_matmul *o = &m->o;
  const uint64_t bytes = 2ull * o->outputs * o->inputs, all = measure_software(m->b) ? 0 : 600 << 20;
  const bool decodes = o->rows <= DECODED;
  m->copies = !decodes || all < bytes ? 1 : all / bytes < MOST_COPIES ? (uint32_t)(all / bytes) : MOST_COPIES;
  const double operations = 2.0 * o->rows * o->outputs * o->inputs, products = decodes ? 256 : 4;
  m->products = measure_software(m->b) ? 1 : (uint32_t)fmax(1, fmin(products, MOST_OPERATIONS / operations));
  for (uint32_t i = 0; i < m->copies; i++) arena_add(&m->arena, &m->w[i], DTYPE_BF16, o->outputs, o->inputs, o->inputs);
  m->list.matrices = o->precision == DELTAIC_PRECISION_FAST ? MATRICES_BEST : MATRICES_NONE;
  const uint64_t parts = m->list.matrices ? m->b->parts_bytes / sizeof(float) : 0;
  if (parts) arena_add(&m->arena, &m->list.parts, DTYPE_F32, 1, parts, parts);
  const struct tensor w = {.dtype = DTYPE_BF16, .rows = o->outputs, .cols = o->inputs, .stride = o->inputs};
  const enum dtype dtype = input_dtype(m->b, &m->list, w, o->rows);
  arena_add(&m->arena, &m->x, dtype, o->rows, o->inputs, o->inputs);
  arena_add(&m->arena, &m->y, DTYPE_F32, o->rows, o->outputs, o->outputs);
  deltaic_status status = arena_allocate(&m->arena, m->b, MEMORY_DEVICE, "a product's tensors");
  return status || !parts ? status
                          : m->b->functions->buffer_zero(m->b, m->list.parts.buffer, m->list.parts.offset, 4 * parts);
}

// ---------------------------------------------------------------- times and results

// An idle GPU runs at a sixth of its clock and takes the longer to raise it the longer it has idled, which it does for
// seconds while large matrices are filled. On an H200 a second of warming up once left it at a quarter.
static deltaic_status time_runs(struct measurement *m, double began, deltaic_matmul_result *r) {
  double *runs = calloc(m->o.repeat, sizeof *runs);
  if (!runs) return fail_memory("times", m->o.repeat * sizeof *runs);
  if (m->b->replays) record(m); // compiles, while the device idles
  const double start = measure_now(), idle = start - began;
  const double cold = fmin(fmax(0.4, 3 * idle), 4);
  const double warm = measure_software(m->b) ? 0 : m->awake ? measure_warm(idle) : cold;
  deltaic_status status = DELTAIC_OK;
  do status = run(m);
  while (!status && measure_now() - start < warm);
  for (uint32_t i = 0; i < m->o.repeat && !status; i++) {
    const double before = measure_now();
    status = run(m);
    runs[i] = (measure_now() - before) / m->products;
  }
  if (!status) measure_summary(runs, m->o.repeat, &r->seconds, &r->least, &r->most);
  free(runs);
  return status;
}

// Computes the relative RMS error of some outputs, spread over y.
static deltaic_status compare(struct measurement *m, deltaic_matmul_result *r) {
  enum { SAMPLES = 4096 };
  const deltaic_matmul *o = &m->o;
  const uint64_t numbers = (uint64_t)o->rows * o->outputs, step = numbers / SAMPLES + 1;
  float *y = malloc(numbers * sizeof *y);
  if (!y) return fail_memory("a product's results", numbers * sizeof *y);
  deltaic_status status = m->b->functions->buffer_read(m->b, m->y.buffer, m->y.offset, y, numbers * sizeof *y);
  double difference = 0, all = 0;
  for (uint64_t i = 0; i < numbers && !status; i += step) {
    const float *x = m->inputs + i / o->outputs * o->inputs;
    const uint16_t *w = m->weights + i % o->outputs * o->inputs;
    double want = 0;
    for (uint32_t k = 0; k < o->inputs; k++) want += (double)x[k] * bf16_to_f32(w[k]);
    difference += (y[i] - want) * (y[i] - want);
    all += want * want;
  }
  r->error = sqrt(difference / all);
  free(y);
  return status;
}

// Finds the kernel's name by a recording of its own.
static deltaic_status name_kernel(struct measurement *m, deltaic_matmul_result *r) {
  deltaic_kernel_time times[4] = {0};
  deltaic_status status = m->b->functions->recorder_profile(m->c, true);
  m->products = 1;
  record(m);
  if (!status) status = m->b->functions->recorder_run(m->c);
  if (!status && m->b->functions->recorder_times(m->c, times, 4)) memcpy(r->kernel, times[0].name, sizeof r->kernel);
  return status;
}

static deltaic_status check_matmul(deltaic_matmul *o) {
  if (!o->repeat) o->repeat = 20;
  if (!o->rows || !o->outputs || !o->inputs || o->inputs % 8 || o->repeat > MEASURE_MOST_RUNS ||
      o->precision > DELTAIC_PRECISION_FLOAT32)
    return fail(DELTAIC_INVALID_ARGUMENT,
                "deltaic_matmul: sizes must not be 0, inputs must be a multiple of 8, and repeat at most %d",
                MEASURE_MOST_RUNS);
  if ((double)o->rows * o->inputs > INT32_MAX || (double)o->rows * o->outputs > INT32_MAX ||
      (double)o->inputs * o->outputs > INT32_MAX)
    return fail(DELTAIC_UNSUPPORTED, "deltaic_matmul: the product is larger than kernels can index");
  return DELTAIC_OK;
}

deltaic_status deltaic_device_measure_matmul(deltaic_device *d, const deltaic_matmul *matmul,
                                             deltaic_matmul_result *result) {
  struct measurement m = {0};
  if (!d || !matmul || !result)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_device_measure_matmul: %s is NULL",
                !d        ? "device"
                : !matmul ? "matmul"
                          : "result");
  const double began = measure_now();
  deltaic_status status = options_read(&m.o, sizeof m.o, matmul, "deltaic_matmul");
  if (!status) status = check_matmul(&m.o);
  if (status) return status;
  deltaic_matmul_result r = {.bytes = 2ull * m.o.outputs * m.o.inputs,
                             .operations = 2ull * m.o.rows * m.o.outputs * m.o.inputs};
  m.b = d->backend;
  m.awake = d->awake;
  status = allocate(&m);
  if (!status && d->collects) {
    list_products(&m, d->collects);
  } else {
    if (!status) status = m.b->functions->recorder_create(m.b, &m.c);
    if (!status) status = fill(&m);
    if (!status) status = time_runs(&m, began, &r);
    if (!status) status = compare(&m, &r);
    if (!status) status = name_kernel(&m, &r);
  }
  r.bytes += m.o.rows * (dtype_bytes(m.x.dtype, m.o.inputs) + 4ull * m.o.outputs);
  if (!status) *result = r;
  if (m.c) m.b->functions->recorder_free(m.c);
  arena_free(&m.arena, m.b);
  oplist_free(&m.list);
  free(m.weights);
  free(m.inputs);
  return status;
}

// ---------------------------------------------------------------- the device's matrices

// Runs many products, since the clock rises only after more time than one takes.
deltaic_status deltaic_device_matrix_rate(deltaic_device *d, double *operations_per_second) {
  enum { RUNS = 30, KERNELS = 8 };
  if (!d || !operations_per_second)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_device_matrix_rate: %s is NULL",
                !d ? "device" : "operations_per_second");
  struct backend *b = d->backend;
  const uint32_t size = measure_software(b) ? 256 : 4096;
  struct recorder *c = NULL;
  struct arena arena = {0};
  struct tensor x, y, w;
  arena_add(&arena, &x, DTYPE_F32, size, size, size);
  arena_add(&arena, &y, DTYPE_F32, size, size, size);
  arena_add(&arena, &w, DTYPE_F16, size, size, size);
  deltaic_status status = arena_allocate(&arena, b, MEMORY_DEVICE, "the matrix test");
  if (status == DELTAIC_OK) status = arena_zero(&arena, b);
  if (status == DELTAIC_OK) status = b->functions->recorder_create(b, &c);
  double best = 0;
  struct oplist l = {.matrices = MATRICES_BEST};
  if (status == DELTAIC_OK) x = tensor_as(x, input_dtype(b, &l, w, size));
  oplist_begin(&l);
  op_linear(&l, y, x, w, (struct tensor){0});
  for (int run = 0; run < RUNS && status == DELTAIC_OK; run++) {
    deltaic_kernel_time times[KERNELS];
    status = b->functions->recorder_profile(c, true);
    b->functions->recorder_begin(c, false, NULL);
    b->functions->recorder_list(c, &l);
    if (status == DELTAIC_OK) status = b->functions->recorder_run(c);
    size_t count = b->functions->recorder_times(c, times, KERNELS);
    double seconds = 0;
    for (size_t k = 0; k < count && k < KERNELS; k++) seconds += times[k].seconds;
    if (b->functions->recorder_profile(c, false) == DELTAIC_OK && seconds > 0 && 1 / seconds > best) best = 1 / seconds;
  }
  *operations_per_second = 2.0 * size * size * size * best;
  if (c) b->functions->recorder_free(c);
  oplist_free(&l);
  arena_free(&arena, b);
  return status;
}
