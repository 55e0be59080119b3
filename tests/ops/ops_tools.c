#include "ops_tools.h"

struct backend *backend;
struct recorder *recorder;
static struct oplist the_list;
struct oplist *list = &the_list;
enum matrices case_matrices;
const struct tensor ABSENT;
const uint32_t lengths[LENGTHS] = {1, 2, 3, 15, 16, 17, 63, 64, 65, 200};
const enum delta_form forms[FORMS] = {DELTA_RECURRENT, DELTA_CHUNK, DELTA_AUTO};
const uint32_t text_cuts[CUTS][4] = {{1, 149}, {64, 86}, {65, 15, 70}, {17, 16, 100, 17}, {63, 1, 1, 85}};

uint32_t place_sequences(struct sequence *sequences, const uint32_t *T, uint32_t B) {
  uint32_t rows = 0;
  for (uint32_t i = 0; i < B; i++) {
    sequences[i] = (struct sequence){.row = rows, .T = T[i], .pos = 3 * i, .slot = B - i};
    rows += T[i];
  }
  return rows;
}

bool all_shapes(void) {
  const char *all = getenv("DELTAIC_TEST_ALL");
  return !backend->replays || (all && !strcmp(all, "1"));
}

uint32_t shapes(uint32_t all, uint32_t few) { return all_shapes() ? all : few; }

void rewind_array(struct array *a) { *a = activations_in(a->t.dtype, a->t.rows, a->t.cols, a->t.stride, a->v); }

void list_defaults(void) {
  list->matrices = case_matrices;
  list->form = DELTA_AUTO;
  list->longest = 0;
  list->plain = false;
}

void begin(void) {
  recorder->functions->recorder_begin(recorder, false, NULL);
  oplist_begin(list);
}

// Room for the values and for what operations take beside.
static void reserve_scratch(void) {
  uint64_t largest;
  const uint64_t bytes = backend->functions->list_bytes(backend, list, &largest);
  list->scratch = bytes ? activations(1, (uint32_t)(bytes / sizeof(float)), DENSE, NULL).t : ABSENT;
}

deltaic_status try_run(void) {
  reserve_scratch();
  recorder->functions->recorder_list(recorder, list);
  return recorder->functions->recorder_run(recorder);
}

void run(void) {
  if (try_run()) fail_msg("%s", deltaic_last_error());
}

void profile_begin(void) { assert_int_equal(recorder->functions->recorder_profile(recorder, true), DELTAIC_OK); }

bool profile_end(const char *name) {
  deltaic_kernel_time times[16];
  const size_t count = recorder->functions->recorder_times(recorder, times, 16);
  bool ran = false;
  assert_in_range(count, 1, 16);
  for (size_t i = 0; i < count; i++) ran = ran || strstr(times[i].name, name);
  assert_int_equal(recorder->functions->recorder_profile(recorder, false), DELTAIC_OK);
  return ran;
}

// ---------------------------------------------------------------- memory of a test

enum { OWNED = 4096 };
static void *owned[OWNED];
static struct buffer *buffers[OWNED];
static size_t owned_count, buffer_count;

static void *own(void *memory) {
  assert_non_null(memory);
  assert_true(owned_count < OWNED);
  return owned[owned_count++] = memory;
}

int tools_setup(void **state) {
  list_defaults();
  return 0;
}

int tools_teardown(void **state) {
  while (buffer_count) backend->functions->buffer_free(backend, buffers[--buffer_count]);
  while (owned_count) free(owned[--owned_count]);
  return 0;
}

double *zeros(size_t n) { return own(calloc(n + 1, sizeof(double))); }

static struct tensor tensor_create(enum memory_kind kind, enum dtype dtype, uint32_t rows, uint32_t cols,
                                   uint32_t stride) {
  struct buffer *buffer = own(calloc(1, sizeof *buffer));
  struct tensor t = {.dtype = dtype, .rows = rows, .cols = cols, .stride = stride ? stride : cols, .buffer = buffer};
  uint64_t bytes = round_up(dtype_bytes(dtype, (uint64_t)rows * t.stride), 4);
  assert_true(buffer_count < OWNED);
  if (backend->functions->buffer_create(backend, kind, bytes ? bytes : 4, "test", buffer))
    fail_msg("%s", deltaic_last_error());
  buffers[buffer_count++] = buffer;
  return t;
}

// Numbers in blocks of 32: the largest of a block is 127 times its scale.
static void encode_q8_0(const float *x, size_t n, char *out) {
  for (; n; n -= 32, x += 32, out += 34) {
    float most = 0;
    for (int i = 0; i < 32; i++) most = fmaxf(most, fabsf(x[i]));
    const uint16_t scale = f32_to_f16(most / 127);
    memcpy(out, &scale, 2);
    for (int i = 0; i < 32; i++) {
      const float q = scale ? roundf(x[i] / f16_to_f32(scale)) : 0;
      out[2 + i] = (char)(int8_t)fmaxf(-127, fminf(127, q));
    }
  }
}

// Random blocks whose elements are at most 4, whatever the values are.
static void random_blocks(enum dtype dtype, size_t blocks, char *out) {
  const struct format *f = &formats[dtype];
  for (size_t i = 0; i < blocks * f->bytes; i++) out[i] = (char)(unsigned char)uniform(0, 256);
  for (size_t b = 0; b < blocks; b++)
    for (int i = 0; i < 2 && f->scales[i].most > 0; i++) {
      const uint16_t scale = f32_to_f16((float)uniform(-2, 2) / f->scales[i].most);
      memcpy(out + b * f->bytes + f->scales[i].at, &scale, 2);
    }
}

static void encode(enum dtype dtype, const float *x, size_t n, void *out) {
  uint16_t *narrow = out;
  if (dtype_is_blocks(dtype) && dtype != DTYPE_Q8_0) random_blocks(dtype, n / formats[dtype].elements, out);
  if (dtype == DTYPE_F32) memcpy(out, x, n * sizeof *x);
  if (dtype == DTYPE_Q8_0) encode_q8_0(x, n, out);
  for (size_t i = 0; i < n && dtype == DTYPE_F16; i++) narrow[i] = f32_to_f16(x[i]);
  for (size_t i = 0; i < n && dtype == DTYPE_BF16; i++) narrow[i] = f32_to_bf16(x[i]);
}

// The same weights as tiles, where the backend wants them.
static void retile(struct array *a, const char *data) {
  const struct tensor from = a->t;
  const enum dtype dtype = dtype_tiled(from.dtype);
  if (!backend->tiles || dtype == from.dtype) return;
  const uint64_t row = dtype_bytes(from.dtype, from.stride);
  a->t = tensor_create(MEMORY_DEVICE, dtype, from.rows, from.cols, (uint32_t)weight_stride(dtype, from.stride));
  const uint64_t pitch = dtype_bytes(dtype, a->t.stride);
  char *tiles = calloc(from.rows + 1, pitch);
  for (uint32_t i = 0; i < from.rows; i++) dtype_tile(from.dtype, data + i * row, from.stride, tiles + i * pitch);
  assert_int_equal(backend->functions->buffer_write(backend, a->t.buffer, 0, tiles, from.rows * pitch), DELTAIC_OK);
  free(tiles);
}

// Writes the values (rounded to the tensor's dtype) with `gap` after each row, and keeps what was stored.
static struct array array_create(enum dtype dtype, uint32_t rows, uint32_t cols, uint32_t stride, const double *values,
                                 float gap) {
  struct array a = {tensor_create(MEMORY_DEVICE, dtype, rows, cols, stride), zeros((size_t)rows * cols)};
  const size_t n = (size_t)rows * a.t.stride, bytes = dtype_bytes(dtype, n);
  float *wide = malloc((n + 1) * sizeof *wide);
  void *data = malloc(bytes + 1);
  for (size_t i = 0; i < n; i++) {
    size_t row = i / a.t.stride, col = i % a.t.stride;
    wide[i] = col >= cols ? gap : values ? (float)values[row * cols + col] : 0;
  }
  encode(dtype, wide, n, data);
  dtype_decode(dtype, data, 0, n, wide);
  for (size_t i = 0; i < (size_t)rows * cols; i++) a.v[i] = wide[i / cols * a.t.stride + i % cols];
  assert_int_equal(backend->functions->buffer_write(backend, a.t.buffer, 0, data, bytes), DELTAIC_OK);
  retile(&a, data);
  free(wide);
  free(data);
  return a;
}

struct array activations_in(enum dtype dtype, uint32_t rows, uint32_t cols, uint32_t stride, const double *values) {
  return array_create(dtype, rows, cols, stride, values, NAN);
}

struct array activations(uint32_t rows, uint32_t cols, uint32_t stride, const double *values) {
  return activations_in(DTYPE_F32, rows, cols, stride, values);
}

struct array weights(enum dtype dtype, uint32_t rows, uint32_t cols, uint32_t stride, const double *values) {
  return array_create(dtype, rows, cols, stride ? stride : (uint32_t)weight_stride(dtype, cols), values, 0);
}

struct array integers(uint32_t rows, uint32_t cols, const void *values) {
  struct array a = {tensor_create(MEMORY_SHARED, DTYPE_I32, rows, cols, DENSE), NULL};
  uint64_t bytes = 4ull * rows * cols;
  if (values)
    assert_int_equal(backend->functions->buffer_write(backend, a.t.buffer, 0, values, bytes), DELTAIC_OK);
  else
    assert_int_equal(backend->functions->buffer_zero(backend, a.t.buffer, 0, bytes), DELTAIC_OK);
  return a;
}

struct array sequences_of(const struct sequence *sequences, uint32_t B) {
  return integers(B, 4, sequences);
}

double *read_values(const struct array *a) {
  uint64_t n = (uint64_t)a->t.rows * a->t.stride, bytes = dtype_bytes(a->t.dtype, n);
  void *raw = malloc(bytes + 1);
  double *values = zeros((size_t)a->t.rows * a->t.cols);
  assert_int_equal(backend->functions->buffer_read(backend, a->t.buffer, 0, raw, bytes), DELTAIC_OK);
  for (size_t i = 0; i < (size_t)a->t.rows * a->t.cols; i++) {
    size_t at = i / a->t.cols * a->t.stride + i % a->t.cols;
    values[i] = a->t.dtype == DTYPE_F16 ? f16_to_f32(((uint16_t *)raw)[at]) : ((float *)raw)[at];
  }
  free(raw);
  return values;
}

void *read_words(const struct array *a) {
  uint64_t bytes = 4ull * a->t.rows * a->t.cols;
  void *words = own(malloc(bytes + 4));
  assert_int_equal(backend->functions->buffer_read(backend, a->t.buffer, 0, words, bytes), DELTAIC_OK);
  return words;
}

// ---------------------------------------------------------------- numbers

static uint64_t random_state;

void seed(uint64_t value) { random_state = value * 0x9E3779B97F4A7C15ull + 1; }

double uniform(double low, double high) { // splitmix64
  uint64_t z = random_state += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return low + (high - low) * (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

double normal(void) { return sqrt(-2 * log(1 - uniform(0, 1))) * cos(2 * 3.14159265358979 * uniform(0, 1)); }

double *uniforms(size_t n, double low, double high) {
  double *v = zeros(n);
  for (size_t i = 0; i < n; i++) v[i] = uniform(low, high);
  return v;
}

double *normals(size_t n) {
  double *v = zeros(n);
  for (size_t i = 0; i < n; i++) v[i] = normal();
  return v;
}

// ---------------------------------------------------------------- comparisons

enum { NAMES = 96 };
static struct {
  const char *what;
  double error, limit;
} worst[NAMES];
static size_t worst_count;

double rms_error(const double *got, const double *want, size_t n) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < n; i++) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  if (isnan(difference)) return INFINITY;
  return difference == 0 ? 0 : sqrt(difference / size);
}

void expect_close(const char *what, const double *got, const double *want, size_t n, double limit) {
  double error = rms_error(got, want, n);
  size_t i = 0;
  while (i < worst_count && strcmp(worst[i].what, what)) i++;
  if (i == worst_count && i < NAMES) worst[worst_count++].what = what;
  if (i < NAMES && error >= worst[i].error) worst[i].error = error, worst[i].limit = limit;
  if (error > limit) fail_msg("%s: relative RMS error %.3g exceeds %.3g", what, error, limit);
}

void expect_rows(const char *what, const struct array *a, uint32_t rows, const double *want, double limit) {
  const size_t used = (size_t)rows * a->t.cols, all = (size_t)a->t.rows * a->t.cols;
  const double *got = read_values(a);
  expect_close(what, got, want, used, limit);
  assert_memory_equal(got + used, a->v + used, (all - used) * sizeof *got);
}

void expect_state(const char *what, const struct array *a, const double *want, double limit) {
  const size_t cols = a->t.cols, bytes = cols * sizeof *want;
  const double *got = read_values(a);
  expect_close(what, got, want, a->t.rows * cols, limit);
  for (size_t row = 0; row < a->t.rows; row++)
    if (!memcmp(want + row * cols, a->v + row * cols, bytes))
      assert_memory_equal(got + row * cols, a->v + row * cols, bytes);
}

void report_worst(void) {
  for (size_t i = 0; i < worst_count; i++)
    print_message("%-44s worst relative RMS %.2e (limit %.0e)\n", worst[i].what, worst[i].error, worst[i].limit);
  memset(worst, 0, sizeof worst);
  worst_count = 0;
}

double reference_activation(enum activation activation, double z) {
  double s = 1 / (1 + exp(-z));
  switch (activation) {
  case ACTIVATION_IDENTITY: return z;
  case ACTIVATION_SILU: return z * s;
  case ACTIVATION_RELU: return z > 0 ? z : 0;
  case ACTIVATION_ELU1: return z > 0 ? z + 1 : exp(z);
  case ACTIVATION_POWLU: return z > 0 ? pow(z, 3 / (sqrt(z) + 1)) * s : z * s;
  case ACTIVATION_SIGMOID: return s;
  }
  return NAN;
}

struct array copying_weights(uint32_t rows, uint32_t from, uint32_t cols) {
  double *w = zeros((size_t)rows * cols);
  for (uint32_t c = 0; c < cols; c++) w[(size_t)(from + c) * cols + c] = 1;
  return weights(DTYPE_F32, rows, cols, (uint32_t)round_up(cols, 8), w);
}

void convolve(const struct conv *conv, uint32_t from) {
  const uint32_t T = conv->x.rows, N = from + conv->x.cols + 4; // the columns before and after stay 0
  struct array p = activations(T, N, DENSE, NULL);
  struct conv of_product = *conv;
  begin();
  const struct tensor product = oplist_value(list, T, N);
  oplist_bind(list, product, p.t);
  of_product.x = tensor_cols(product, from, conv->x.cols);
  op_linear(list, product, conv->x, copying_weights(N, from, conv->x.cols).t, ABSENT);
  op_conv(list, &of_product);
  run();
  const double *got = read_values(&p);
  for (uint32_t t = 0; t < T; t++) {
    if (from) assert_true(got[(size_t)t * N] == 0);
    assert_true(got[(size_t)t * N + N - 1] == 0);
  }
}
