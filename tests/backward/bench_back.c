// bench_back: the backward pass of the delta rule by chunks on cooperative matrices, on the first usable Vulkan device.
// No test. usage: bench_back check SEQUENCES TOKENS HEADS D GATED [OPTIONS...], errors relative to the pass token by
// token, for each gradient, or bench_back time SEQUENCES TOKENS HEADS D GATED [OPTIONS...], milliseconds of each
// kernel, of all of them, and of the least that memory allows at 4,200 GB/s. OPTIONS:
// conversions,block,states,reverse,grads,split,width,own, such as 1,64,4,4,4,1,32,2 (plan_back_rule.h); 0 leaves the
// plan's number, and conversions 0 means none. HEADS may be KEYS/VALUES, and TOKENS of a check are those of the longest
// sequence; every other one is shorter.
#include "../ops/bench_tools.h"

#include "backward_vulkan.h"
#include "platform.h"

#include <math.h>

struct shape {
  uint32_t B, T, H, Hv, D;
  bool gated, check;
};

struct room {
  struct buffer values, gradients, states, before, state_gradients, sequences;
};

static struct shape shape;
static struct room room;
static struct delta_rule rule;
static struct walk walk_of;
static uint32_t rows;

// ---------------------------------------------------------------- inputs

static uint32_t seed = 1;
static float uniform(void) { // -1 ... 1
  seed = seed * 1664525u + 1013904223u;
  return (float)(int32_t)seed * 0x1p-31f;
}

static struct buffer memory(uint64_t bytes) {
  struct buffer b;
  check(backend->functions->buffer_create(backend, MEMORY_DEVICE, bytes, "bench", &b));
  check(backend->functions->buffer_zero(backend, &b, 0, bytes));
  return b;
}

static void write(struct buffer *to, uint64_t at, const float *from, uint64_t n) {
  check(backend->functions->buffer_write(backend, to, at, from, n * sizeof(float)));
}

// Rows of `cols` numbers; the same again after `unlike` rows, which saves time.
static void fill(struct buffer *to, uint64_t at, uint32_t cols, uint32_t unlike, float (*number)(uint32_t column)) {
  const uint32_t n = unlike < rows ? unlike : rows;
  float *x = malloc((uint64_t)n * cols * sizeof *x);
  for (uint64_t i = 0; i < (uint64_t)n * cols; i++) x[i] = number((uint32_t)(i % cols));
  for (uint32_t r = 0; r < rows; r += n)
    write(to, at + (uint64_t)r * cols * 4, x, (uint64_t)(rows - r < n ? rows - r : n) * cols);
  free(x);
}

static float keys_of(uint32_t c) { // about normalized, and correlated
  if (c >= 2 * shape.H * shape.D) return uniform();
  return (uniform() + (c % shape.D < 8 ? 0.3f : 0)) * sqrtf(3.f / (float)shape.D);
}
static float beta_of(uint32_t c) { return 0.5f + 0.45f * uniform() + 0 * (float)c; }
static float g_of(uint32_t c) { return c % 7 == 0 ? -2 - 2 * uniform() : -0.1f - 0.1f * uniform(); }
static float do_of(uint32_t c) { return 100 * uniform() * uniform() * uniform() * (c % 5 ? 1.f : 20.f); }
static float state_of(uint32_t c) { return 0.3f * uniform() + 0 * (float)c; }

static struct tensor value(uint64_t *used, uint32_t cols) {
  return bench_view(&room.values, DTYPE_F32, used, rows, cols);
}

static void make_inputs(void) {
  const uint32_t H = shape.H, Hv = shape.Hv, D = shape.D, cols = 2 * H * D + Hv * D;
  struct sequence *s = calloc(shape.B, sizeof *s);
  rows = 0;
  for (uint32_t b = 0; b < shape.B; b++) {
    const uint32_t T = shape.check && b % 2 ? shape.T / 2 : shape.T;
    s[b] = (struct sequence){rows, T, 0, b};
    rows += T;
  }
  const uint32_t unlike = shape.check ? rows : 2048;
  uint64_t used = 0, bytes = 4ull * (rows + 64) * (cols + 2 * Hv + Hv * D) + 65536,
           states = 4ull * Hv * D * D * shape.B;
  room.values = memory(bytes);
  room.gradients = memory(bytes);
  room.states = memory(states);
  room.before = memory(states);
  room.state_gradients = memory(states);
  check(backend->functions->buffer_create(backend, MEMORY_SHARED, shape.B * sizeof *s, "bench", &room.sequences));
  memcpy(room.sequences.mapped, s, shape.B * sizeof *s);
  free(s);
  const struct tensor none = {0};
  const struct tensor qkv = value(&used, cols), beta = value(&used, Hv), g = shape.gated ? value(&used, Hv) : none;
  rule = (struct delta_rule){
      .qkv = qkv,
      .beta = beta,
      .g = g,
      .o = value(&used, Hv * D),
      .state = {.rows = shape.B, .cols = Hv * D * D, .stride = Hv * D * D, .buffer = &room.states},
      .sequences = {.rows = shape.B, .cols = 4, .stride = 4, .buffer = &room.sequences},
      .a = {.H = H, .Hv = Hv, .Dk = D, .Dv = D, .n = 1, .r = 1, .scale = 1 / sqrtf((float)D), .gated = shape.gated}};
  fill(&room.values, rule.qkv.offset, cols, unlike, keys_of);
  fill(&room.values, rule.beta.offset, Hv, unlike, beta_of);
  if (shape.gated) fill(&room.values, rule.g.offset, Hv, unlike, g_of);
  fill(&room.gradients, rule.o.offset, Hv * D, unlike, do_of);
  if (!shape.check) return;
  rows = shape.B;
  fill(&room.before, 0, Hv * D * D, shape.B, state_of);
  rows = rule.qkv.rows;
}

// ---------------------------------------------------------------- runs

static void record(const struct plan_back_rule *p) { // NULL: token by token
  walk_of.used = 0;
  walk_of.fresh = shape.check ? 0 : 1u << 2; // in a layer the gradients of q, k and v are overwritten
  if (p)
    vulkan_back_chunks_planned(&walk_of, &rule, p);
  else
    vulkan_back_delta_rule(&walk_of, &rule);
  check(walk_of.status);
}

static void run(const struct plan_back_rule *p) {
  backend->functions->recorder_begin(recorder, false, NULL);
  record(p);
  check(backend->functions->recorder_run(recorder));
}

// A fresh run's gradient of a tensor.
static float *gradients(const struct plan_back_rule *p, float **states) {
  const uint64_t bytes = room.gradients.bytes, state = room.states.bytes;
  float *zeros = calloc(1, bytes), *out = malloc(bytes);
  write(&room.gradients, 0, zeros, rule.o.offset / 4);
  free(zeros);
  float *d = malloc(state);
  seed = 5;
  for (uint64_t i = 0; i < state / 4; i++) d[i] = 20 * uniform();
  write(&room.state_gradients, 0, d, state / 4);
  run(p);
  check(backend->functions->buffer_read(backend, &room.gradients, 0, out, bytes));
  check(backend->functions->buffer_read(backend, &room.state_gradients, 0, d, state));
  *states = d;
  return out;
}

static void compare(const char *name, const float *got, const float *want, uint32_t cols, uint32_t stride) {
  double error = 0, norm = 0;
  for (uint32_t r = 0; r < rule.qkv.rows; r++)
    for (uint32_t c = 0; c < cols; c++) {
      const uint64_t i = (uint64_t)r * stride + c;
      error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
      norm += (double)want[i] * want[i];
    }
  printf("  %s %.1e", name, sqrt(error / norm));
}

static void check_plan(const struct plan_back_rule *p) {
  static float *want, *want_states;
  if (!want) want = gradients(NULL, &want_states);
  float *states, *got = gradients(p, &states);
  const uint32_t keys = shape.H * shape.D, stride = rule.qkv.stride;
  const uint64_t beta = rule.beta.offset / 4, g = rule.g.offset / 4;
  compare("dq", got, want, keys, stride);
  compare("dk", got + keys, want + keys, keys, stride);
  compare("dv", got + 2 * keys, want + 2 * keys, shape.Hv * shape.D, stride);
  compare("dbeta", got + beta, want + beta, shape.Hv, shape.Hv);
  if (shape.gated) compare("dg", got + g, want + g, shape.Hv, shape.Hv);
  const uint32_t of_rows = rule.qkv.rows;
  rule.qkv.rows = shape.B;
  compare("dstate", states, want_states, rule.state.cols, rule.state.cols);
  rule.qkv.rows = of_rows;
  printf("\n");
  free(got);
  free(states);
}

static void time_plan(const struct plan_back_rule *p) {
  enum { KERNELS = 16, RUNS = 5 };
  const struct backend_functions *f = backend->functions;
  deltaic_kernel_time times[KERNELS];
  const uint64_t begin = platform_clock_ns();
  do run(p); // a device that was idle runs slower for up to two seconds
  while (platform_clock_ns() - begin < 2500000000);
  check(f->recorder_busy(recorder, true));
  for (int i = 0; i < RUNS; i++) run(p);
  size_t n = f->recorder_times(recorder, times, KERNELS);
  const double all = n ? 1e3 * times[0].seconds / RUNS : 0;
  check(f->recorder_busy(recorder, false));
  check(f->recorder_profile(recorder, true));
  for (int i = 0; i < RUNS; i++) run(p);
  n = f->recorder_times(recorder, times, KERNELS);
  check(f->recorder_profile(recorder, false));
  const double floats = (double)rule.qkv.rows * (2.0 * rule.qkv.cols + rule.o.cols);
  printf("  all %.3f ms, memory's least %.3f ms;", all, 4 * floats / 4.2e9);
  for (size_t i = 0; i < n; i++) printf("  %s %.3f", times[i].name, 1e3 * times[i].seconds / RUNS);
  printf("\n");
}

static void one_plan(const struct plan *plan, const char *options) {
  struct plan_back_rule p;
  unsigned conversions = 1, block = 0, states = 0, reverse = 0, of_grads = 0, split = 0, width = 0, own = 0;
  sscanf(options, "%u,%u,%u,%u,%u,%u,%u,%u", &conversions, &block, &states, &reverse, &of_grads, &split, &width, &own);
  if (!plan_back_rule(plan, shape.D, shape.D, shape.B * shape.Hv, conversions, &p))
    exit(fprintf(stderr, "no plan for this device\n"));
  if (block) p.block = block;
  if (states) p.states = states;
  if (reverse) p.reverse = reverse;
  if (of_grads) p.grads = of_grads;
  if (split) p.split = split;
  if (width) p.width = width;
  if (own) p.own = own;
  printf("%s of %u x %u, %u/%u heads of %u%s: %u,%u,%u,%u,%u,%u,%u,%u", shape.check ? "errors" : "time", shape.B,
         shape.T, shape.H, shape.Hv, shape.D, shape.gated ? ", gated" : "", p.conversions, p.block, p.states, p.reverse,
         p.grads, p.split, p.width, p.own);
  if (plan_back_scan_bytes(plan, &p, true) > plan->shared_bytes || plan_back_grads_bytes(plan, &p) > plan->shared_bytes)
    printf("  does not fit into shared memory\n");
  else if (shape.check)
    check_plan(&p);
  else
    time_plan(&p);
  fflush(stdout);
}

static int argument_count;
static char **arguments;

static int bench(struct instance *instance, VkPhysicalDevice handle, const struct device_caps *caps,
                 const struct plan *plan) {
  static bool done;
  if (done || !plan->matrix_mixers) return 0;
  done = true;
  bench_open(instance, handle, caps, plan);
  oplist_begin(&list);
  make_inputs();
  list.longest = shape.T;
  walk_of = (struct walk){.c = recorder,
                          .functions = walk_functions(backend),
                          .list = &list,
                          .values = &room.values,
                          .gradients = &room.gradients,
                          .states = &room.states,
                          .before = &room.before,
                          .state_gradients = &room.state_gradients};
  if (argument_count < 8) one_plan(plan, "1");
  for (int i = 7; i < argument_count; i++) one_plan(plan, arguments[i]);
  walk_free(&walk_of);
  struct buffer *const all[] = {&room.values, &room.gradients,       &room.states,
                                &room.before, &room.state_gradients, &room.sequences};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) backend->functions->buffer_free(backend, all[i]);
  bench_close();
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 7) return fprintf(stderr, "usage: bench_back check|time SEQUENCES TOKENS HEADS D GATED [OPTIONS...]\n");
  shape = (struct shape){.B = (uint32_t)atoi(argv[2]),
                         .T = (uint32_t)atoi(argv[3]),
                         .H = (uint32_t)atoi(argv[4]),
                         .D = (uint32_t)atoi(argv[5]),
                         .gated = atoi(argv[6]) != 0,
                         .check = argv[1][0] == 'c'};
  const char *slash = strchr(argv[4], '/');
  shape.Hv = slash ? (uint32_t)atoi(slash + 1) : shape.H;
  argument_count = argc;
  arguments = argv;
  return bench_vulkan_devices(bench);
}
