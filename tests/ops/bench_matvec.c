// bench_matvec: one token's products with tiles (matvec_dot) over the sizes of their workgroups, on every GPU or on
// what DELTAIC_TEST_DEVICE names; or how fast a device copies after a pause. Each size's results are compared with the
// float64 product of the decoded weights. No test: it only prints. usage: bench_matvec [SECONDS = 100 [WHAT [MIB =
// 900]]], WHAT being "clocks" or in the names of the shapes.
#include "bench_tools.h"
#include "format_encode.h"
#include "matvec_dot.h"
#include "platform.h"

#include <math.h>

enum { RUNS = 4, DISTINCT = 37 };

static struct buffer weights, activations;
static uint64_t weight_bytes, ends_ns;
static const char *what;
static uint32_t dispatches; // of a replay

static struct plan_products *plan(void) { return &((struct vulkan_backend *)backend)->products; }
static struct plan *device_plan(void) { return &vulkan_device(backend)->plan; }

static const struct shape {
  const char *name;
  enum dtype dtype;
  bool gated, norm;
  uint32_t N, K; // gated: outputs
} shapes[] = {
    {"27b down", DTYPE_Q4_K, false, false, 5120, 17408},     {"27b down of 6", DTYPE_Q6_K, false, false, 5120, 17408},
    {"4b o", DTYPE_Q4_K, false, false, 2560, 4096},          {"4b down", DTYPE_Q4_K, false, false, 2560, 9216},
    {"27b qkv of 6", DTYPE_Q6_K, false, true, 10240, 5120},  {"27b o", DTYPE_Q4_K, false, false, 5120, 6144},
    {"9b down", DTYPE_Q4_K, false, false, 4096, 12288},      {"9b o", DTYPE_Q4_K, false, false, 4096, 4096},
    {"9b down of 8", DTYPE_Q8_0, false, false, 4096, 12288}, {"9b gate, up of 8", DTYPE_Q8_0, true, true, 12288, 4096},
    {"4b in", DTYPE_Q4_K, false, true, 12352, 2560},         {"4b gate, up", DTYPE_Q4_K, true, true, 9216, 2560},
    {"9b in of 8", DTYPE_Q8_0, false, true, 12352, 4096},    {"9b qkv of 6", DTYPE_Q6_K, false, true, 8192, 4096},
    {"27b in", DTYPE_Q4_K, false, true, 16480, 5120},        {"27b gate, up", DTYPE_Q4_K, true, true, 17408, 5120},
    {"9b gate, up", DTYPE_Q4_K, true, true, 12288, 4096},    {"9b head", DTYPE_Q6_K, false, true, 248320, 4096},
    {"9b o of 8", DTYPE_Q8_0, false, false, 4096, 4096},     {"0.8b gate, up", DTYPE_Q4_K, true, true, 3584, 1024},
    {"0.8b down", DTYPE_Q4_K, false, false, 1024, 3584},     {"0.8b in of 8", DTYPE_Q8_0, false, true, 8256, 1024},
    {"0.8b head", DTYPE_Q6_K, false, true, 248320, 1024},    {"9b in of 5", DTYPE_Q5_K, false, true, 12352, 4096}};

// What can be chosen.
enum { LANES, ROWS, AHEAD, GROUPS, CHOICES };
struct choice {
  uint32_t n[CHOICES]; // ROWS: of weights, of a team
};

// ---------------------------------------------------------------- numbers

static uint32_t random_state = 1;
static float uniform(void) {
  random_state = random_state * 1664525u + 1013904223u;
  return (float)(random_state >> 8) / 8388608.0f - 1.0f;
}

static struct {
  float x[32768], norm[32768];
  double want[DISTINCT]; // products of the distinct rows
  double inverse_rms;
} numbers;

// Row n of every matrix is distinct row n % DISTINCT; of a gated one too, gate and up apart.
static void fill(const struct shape *s) {
  const uint32_t K = s->K, stride = (uint32_t)weight_stride(dtype_tiled(s->dtype), K);
  const uint64_t pitch = dtype_bytes(dtype_tiled(s->dtype), stride), rows = s->N * (s->gated ? 2u : 1u);
  const uint64_t bytes = round_up(rows * pitch, TENSOR_ALIGN);
  float *row = calloc(stride, sizeof *row);
  char *blocks = calloc(1, dtype_bytes(s->dtype, stride)), *tiles = calloc(DISTINCT, pitch), *all = malloc(bytes);
  double squares = 0;
  for (uint32_t k = 0; k < K; k++) {
    numbers.x[k] = uniform();
    numbers.norm[k] = 1.0f + 0.3f * uniform();
    squares += (double)numbers.x[k] * numbers.x[k];
  }
  numbers.inverse_rms = s->norm ? 1 / sqrt(squares / K + 1e-5) : 1;
  for (uint32_t r = 0; r < DISTINCT; r++) {
    for (uint32_t k = 0; k < K; k++) row[k] = 0.05f * uniform();
    dtype_encode(s->dtype, row, K, blocks);
    dtype_tile(s->dtype, blocks, K, tiles + r * pitch);
    dtype_decode(s->dtype, blocks, 0, K, row);
    numbers.want[r] = 0;
    for (uint32_t k = 0; k < K; k++)
      numbers.want[r] += (double)row[k] * numbers.x[k] * (s->norm ? (double)numbers.norm[k] : 1) * numbers.inverse_rms;
  }
  for (uint64_t r = 0; r < rows; r++) memcpy(all + r * pitch, tiles + r % s->N % DISTINCT * pitch, pitch);
  for (uint64_t at = 0; at + bytes <= weight_bytes; at += bytes)
    check(backend->functions->buffer_write(backend, &weights, at, all, bytes));
  free(row), free(blocks), free(tiles), free(all);
}

// ---------------------------------------------------------------- one size

static struct tensor vector(struct buffer *of, uint64_t offset, uint32_t n) {
  return (struct tensor){.dtype = DTYPE_F32, .rows = 1, .cols = n, .stride = n, .buffer = of, .offset = offset};
}
enum { Y_AT = 0, X_AT = 4 << 20, NORM_AT = 5 << 20 };

static uint32_t team_of(const struct shape *s, const struct choice *c) {
  return (uint32_t)round_up(divide_up(s->K / 32, c->n[GROUPS]), device_plan()->subgroup_width);
}
static uint32_t teams_of(const struct shape *s, const struct choice *c) { return c->n[LANES] / team_of(s, c); }

static bool fits(const struct shape *s, const struct choice *c) {
  const uint32_t teams = teams_of(s, c), rows = c->n[ROWS], of = s->gated ? 2 : 1;
  if (!teams || !rows || rows % of || c->n[AHEAD] > rows) return false;
  const uint32_t lanes = teams * team_of(s, c);
  const uint64_t shared = 4 * (17ull * (s->K / 32 + 4) + (uint64_t)lanes / device_plan()->subgroup_width * (rows + 1));
  return lanes <= device_plan()->most_lanes && shared <= device_plan()->shared_bytes;
}

static void record(const struct shape *s, const struct choice *c, struct buffer *from, uint64_t offset, uint64_t room) {
  const uint32_t of = s->gated ? 2 : 1, teams = teams_of(s, c);
  const enum dtype dtype = dtype_tiled(s->dtype);
  const struct tensor x = vector(&activations, X_AT, s->K), y = vector(&activations, Y_AT, s->N);
  const struct tensor norm = vector(&activations, NORM_AT, s->K);
  struct tensor w = {
      .dtype = dtype, .rows = s->N * of, .cols = s->K, .stride = (uint32_t)weight_stride(dtype, s->K), .buffer = from};
  const uint64_t bytes = round_up(dtype_bytes(dtype, (uint64_t)w.rows * w.stride), TENSOR_ALIGN);
  const uint32_t spec[MATVEC_DOT_SPECS] = {[MATVEC_DOT_SPEC_LANES] = teams * team_of(s, c),
                                           [MATVEC_DOT_SPEC_K] = s->K,
                                           [MATVEC_DOT_SPEC_TEAMS] = teams,
                                           [MATVEC_DOT_SPEC_ROWS] = c->n[ROWS] / of,
                                           [MATVEC_DOT_SPEC_AHEAD] = c->n[AHEAD],
                                           [MATVEC_DOT_SPEC_NORM] = s->norm,
                                           [MATVEC_DOT_SPEC_GATED] = s->gated,
                                           [MATVEC_DOT_SPEC_ACTIVATION] = ACTIVATION_SILU,
                                           [MATVEC_DOT_SPEC_FORMAT] = dtype,
                                           [MATVEC_DOT_SPEC_WIDTH] = device_plan()->subgroup_width};
  const struct matvec_args args = {.T = 1,
                                   .N = s->N,
                                   .K = s->K,
                                   .y_stride = s->N,
                                   .x_stride = s->K,
                                   .w_stride = w.stride,
                                   .eps = 1e-5f};
  for (uint32_t i = 0; i < dispatches; i++) { // all write y, so that each waits for the last
    w.offset = offset + i % (room / bytes) * bytes;
    struct binding bindings[MATVEC_DOT_BINDINGS] = {[MATVEC_Y] = vulkan_bind_output(y, false),
                                                    [MATVEC_X] = vulkan_bind(x, x),
                                                    [MATVEC_WEIGHTS] = vulkan_bind_weights(w),
                                                    [MATVEC_BIAS] = vulkan_bind(x, x),
                                                    [MATVEC_NORM] = vulkan_bind(norm, x)};
    vulkan_no_conv_step(bindings + MATVEC_BINDINGS, bindings[MATVEC_Y]);
    const uint64_t groups = divide_up(s->N, teams * (c->n[ROWS] / of)), y_groups = divide_up(groups, MAX_GROUPS);
    vulkan_dispatch(recorder, KERNEL_matvec_dot_blocks, spec, bindings, &args,
                    (struct grid){divide_up(groups, y_groups), y_groups, 1}, 2ull * s->N * of * s->K);
  }
}

// Microseconds of one dispatch, the least of some runs, after enough of them to raise the clock.
static double replay(uint32_t n) {
  const uint64_t warm_ns = 40000000, first = platform_clock_ns();
  double least = 1e30;
  for (int i = 0; i < RUNS;) {
    const uint64_t start = platform_clock_ns();
    check(backend->functions->recorder_run(recorder));
    const double us = 1e-3 * (double)(platform_clock_ns() - start) / n;
    if (start - first < warm_ns && us < 1e4) continue;
    if (us < least) least = us;
    i++;
  }
  return least;
}

// The largest error of an output, of the outputs' size.
static double error_of(const struct shape *s) {
  float *y = malloc(4ull * s->N);
  double most = 0, size = 0;
  check(backend->functions->buffer_read(backend, &activations, Y_AT, y, 4ull * s->N));
  for (uint32_t n = 0; n < s->N; n++) {
    const double sum = numbers.want[n % DISTINCT], want = s->gated ? sum / (1 + exp(-sum)) * sum : sum;
    const double error = fabs(want - y[n]);
    if (!(error <= most)) most = error;
    size += want * want / s->N;
  }
  free(y);
  return most / sqrt(size);
}

static double time_choice(const struct shape *s, const struct choice *c, const char *mark) {
  const double bytes = (double)s->N * (s->gated ? 2 : 1) *
                       (double)dtype_bytes(dtype_tiled(s->dtype), weight_stride(dtype_tiled(s->dtype), s->K));
  recorder->functions->recorder_begin(recorder, true, NULL);
  record(s, c, &weights, 0, weight_bytes);
  const double us = replay(dispatches), error = error_of(s);
  const uint32_t groups = (uint32_t)divide_up(s->N * (s->gated ? 2 : 1), teams_of(s, c) * c->n[ROWS]);
  printf("%-14s %-5s %5u %5u %4u %5u %5u  %8.2f %6.2f  %.0e%s %s\n", s->name, dtype_name(s->dtype), c->n[LANES],
         c->n[ROWS], c->n[AHEAD], groups, c->n[GROUPS], us, 1e-6 * bytes / us, error, error < 1e-3 ? "" : " WRONG",
         mark);
  fflush(stdout);
  return us;
}

// ---------------------------------------------------------------- a shape

// Rows of a team with which so many workgroups fall to each processor.
static uint32_t rows_for(const struct shape *s, const struct choice *c, double each) {
  const uint32_t of = s->gated ? 2 : 1, teams = teams_of(s, c);
  if (!teams) return 0;
  const double exact = (double)s->N * of / (teams * each * device_plan()->processors);
  return (uint32_t)ceil(exact / of) * of;
}

static bool time_is_up(void) { return platform_clock_ns() > ends_ns; }

// From a start to the best neighbour along each list, until none is better or the shape's time is up.
static void sweep_shape(const struct shape *s, uint64_t until) {
  static const uint32_t lanes[] = {1024, 768, 640, 512}, aheads[] = {2, 1, 4}, groups[] = {1, 2};
  static const double each[] = {1, 2, 3, 4};
  static const size_t counts[CHOICES] = {4, 4, 3, 2};
  struct plan_dot own;
  const uint32_t rows = s->N * (s->gated ? 2 : 1);
  const uint64_t bytes = dtype_bytes(dtype_tiled(s->dtype), rows * weight_stride(dtype_tiled(s->dtype), s->K));
  if (bytes + TENSOR_ALIGN > weight_bytes || !plan_dot(plan(), s->K, rows, s->gated, plan()->device->processors, &own))
    return;
  fill(s);
  check(backend->functions->buffer_write(backend, &activations, X_AT, numbers.x, 4ull * s->K));
  check(backend->functions->buffer_write(backend, &activations, NORM_AT, numbers.norm, 4ull * s->K));
  struct choice best = {{own.lanes, own.rows * (s->gated ? 2 : 1), own.ahead, 1}}, c, seen[200] = {best};
  while (own.lanes / own.teams < team_of(s, &best)) best.n[GROUPS] *= 2;
  double least = time_choice(s, &best, "plan"), best_each = 1;
  size_t count = 1;
  for (bool better = true; better && platform_clock_ns() < until && !time_is_up();) {
    better = false;
    for (int d = 0; d < CHOICES; d++) {
      const struct choice chosen = best;
      const double chosen_each = best_each;
      for (size_t i = 0; i < counts[d] && platform_clock_ns() < until && !time_is_up(); i++) {
        double e = chosen_each;
        c = chosen;
        if (d == LANES) c.n[d] = lanes[i];
        if (d == ROWS) e = each[i];
        if (d == AHEAD) c.n[d] = aheads[i];
        if (d == GROUPS) c.n[d] = groups[i];
        c.n[ROWS] = rows_for(s, &c, e);
        if (!fits(s, &c)) continue;
        c.n[LANES] = teams_of(s, &c) * team_of(s, &c);
        bool old = false;
        for (size_t k = 0; k < count; k++) old |= !memcmp(&seen[k], &c, sizeof c);
        if (old || count == 200) continue;
        seen[count++] = c;
        const double us = time_choice(s, &c, "");
        if (us < least * 0.995) least = us, best = c, best_each = e, better = true;
      }
    }
  }
  time_choice(s, &best, "best");
}

// ---------------------------------------------------------------- clocks

// How fast a copy is, so long after a pause.
static void time_pause(uint32_t seconds, uint64_t bytes) {
  static const double at[] = {0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2};
  struct buffer sides[2];
  for (int i = 0; i < 2; i++)
    check(backend->functions->buffer_create(backend, MEMORY_DEVICE, bytes, "copies", &sides[i]));
  const struct copy copy = {vector(&sides[0], 0, (uint32_t)(bytes / 4)), vector(&sides[1], 0, (uint32_t)(bytes / 4))};
  recorder->functions->recorder_begin(recorder, true, NULL);
  for (int i = 0; i < 4; i++) vulkan_copy(recorder, &copy);
  check(backend->functions->recorder_run(recorder)); // compiles
  platform_sleep_ns(seconds * 1000000000ull);
  printf("copy after a pause of %u s:", seconds);
  const uint64_t first = platform_clock_ns();
  for (size_t i = 0; i < sizeof at / sizeof *at;) {
    const uint64_t start = platform_clock_ns();
    check(backend->functions->recorder_run(recorder));
    const uint64_t end = platform_clock_ns();
    if (1e-9 * (double)(end - first) < at[i]) continue;
    printf(" %g s %.0f GB/s,", at[i++], 8.0 * (double)bytes / (double)(end - start));
    fflush(stdout);
  }
  printf("\n");
  for (int i = 0; i < 2; i++) backend->functions->buffer_free(backend, &sides[i]);
}

// ---------------------------------------------------------------- devices

static int bench_device(struct instance *instance, VkPhysicalDevice handle, const struct device_caps *caps,
                        const struct plan *own) {
  bench_open(instance, handle, caps, own);
  list.matrices = MATRICES_BEST;
  list.longest = 1;
  plan()->dots = caps->integer_dot;
  dispatches = own->software ? 3 : 100;
  printf("%s, %s, %u processors, %llu bytes shared\n", caps->name, caps->driver, own->processors,
         (unsigned long long)own->shared_bytes);
  check(backend->functions->buffer_create(backend, MEMORY_DEVICE, 8 << 20, "activations", &activations));
  const size_t count = sizeof shapes / sizeof *shapes;
  const bool products = strcmp(what, "clocks") != 0;
  if (products) {
    check(backend->functions->buffer_create(backend, MEMORY_DEVICE, weight_bytes, "weights", &weights));
    printf("%-14s %-5s %5s %5s %4s %5s %5s  %8s %6s  %s\n", "shape", "", "lanes", "rows", "ahd", "groups", "own", "us",
           "TB/s", "error");
  }
  for (size_t i = 0; products && i < count && !time_is_up(); i++) {
    if (!strstr(shapes[i].name, what)) continue;
    const uint64_t now = platform_clock_ns(), left = ends_ns - now, share = *what ? left : left / (count - i) * 3 / 2;
    sweep_shape(&shapes[i], now + share);
  }
  if (products) backend->functions->buffer_free(backend, &weights);
  for (uint32_t i = 1; !products && i <= 9; i *= 3) time_pause(i, own->software ? 16 << 20 : 512 << 20);
  backend->functions->buffer_free(backend, &activations);
  bench_close();
  return 0;
}

int main(int argc, char **argv) {
  const double seconds = argc > 1 ? strtod(argv[1], NULL) : 100;
  what = argc > 2 ? argv[2] : "";
  weight_bytes = (argc > 3 ? strtoull(argv[3], NULL, 10) : 900) << 20;
  if (!(seconds > 0) || !weight_bytes) {
    fprintf(stderr, "usage: bench_matvec [SECONDS [WHAT [MIB]]]\n");
    return 2;
  }
  ends_ns = platform_clock_ns() + (uint64_t)(seconds * 1e9);
  return bench_vulkan_devices(bench_device);
}
