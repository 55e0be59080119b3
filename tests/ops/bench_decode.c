// bench_decode: the kernels of decoding over their shapes, on every usable Vulkan GPU (or on what DELTAIC_TEST_DEVICE
// names): products of a 1.37 B model with what they do around them (matvec, and from 2 tokens on matmul_narrow), norms,
// experts, sample and delta_step. Each is replayed many times, every dispatch waiting for the one before it, over
// weights or states that no cache holds. Rows of the plan's own choice are marked. No test: it only prints. usage:
// bench_decode [WHAT [TOKENS = 1 [MIB = 600 [DISPATCHES = 160 [TILES PARTS STEP]...]]]], WHAT being in the name of what
// is timed; with numbers for matmul_narrow, only those.
#include "bench_tools.h"
#include "platform.h"

enum { RUNS = 5 };

static struct buffer weights, activations, control;
static const char *what;
static int count;      // of
static char **numbers; // the arguments behind the others
static uint64_t weight_bytes;
static uint32_t tokens, dispatches; // dispatches: of a replay

static struct plan_products *plan(void) { return &((struct vulkan_backend *)backend)->products; }
static struct plan_rules *rules(void) { return &((struct vulkan_backend *)backend)->rules; }

// A view of f32 numbers behind `offset` of the activations.
static struct tensor f32(uint64_t *offset, uint32_t rows, uint32_t cols) {
  return bench_view(&activations, DTYPE_F32, offset, rows, cols);
}

// The i-th of the matrices that fit into the weights, from the first again behind the last.
static struct tensor matrix(uint32_t rows, uint32_t cols, uint32_t i) {
  const uint64_t bytes = round_up(dtype_bytes(DTYPE_BF16, rows * weight_stride(DTYPE_BF16, cols)), TENSOR_ALIGN);
  return (struct tensor){.dtype = DTYPE_BF16,
                         .rows = rows,
                         .cols = cols,
                         .stride = (uint32_t)weight_stride(DTYPE_BF16, cols),
                         .buffer = &weights,
                         .offset = i % (weight_bytes / bytes) * bytes};
}

// Microseconds of one dispatch of the recording, the least of some runs, after enough of them to raise the clock.
static double replay(void) {
  const uint64_t warm_ns = 100000000, first = platform_clock_ns();
  double least = 1e30;
  for (int i = 0; i < RUNS;) {
    uint64_t start = platform_clock_ns();
    check(backend->functions->recorder_run(recorder));
    double us = 1e-3 * (double)(platform_clock_ns() - start) / dispatches;
    if (start - first < warm_ns) continue;
    if (us < least) least = us;
    i++;
  }
  return least;
}

// ---------------------------------------------------------------- products

enum kind { PLAIN, ADD, NORMED, GATED, CONVOLVED };
static const struct product {
  const char *name;
  enum kind kind;
  uint32_t N, K; // GATED: outputs
} products[] = {{"in: norm, conv", CONVOLVED, 6272, 2048},
                {"o: add", ADD, 2048, 2048},
                {"gate, up: norm", GATED, 5632, 2048},
                {"down: add", ADD, 2048, 5632},
                {"head", PLAIN, 32000, 2048},
                {"head: norm", NORMED, 32000, 2048}};

// Dispatches in turn from one half of the activations to the other, so that each waits for the last. On matrices a norm
// is half of the product before it, half of the product after it.
static double time_product(const struct product *p, enum dtype dtype) {
  const uint32_t rows = p->N * (p->kind == GATED ? 2 : 1), C = 6144, W = 4;
  uint64_t at = 0;
  struct tensor side[2] = {f32(&at, tokens, 248320), f32(&at, tokens, 248320)}, conv_y = f32(&at, tokens, C);
  struct tensor left[2] = {f32(&at, tokens, 32000), f32(&at, tokens, 32000)};
  struct tensor norm = f32(&at, 1, 32000), taps = f32(&at, W, C), history = f32(&at, tokens, (W - 1) * C);
  struct tensor sequences = {.dtype = DTYPE_I32, .rows = tokens, .cols = 4, .stride = 4, .buffer = &control};
  const struct conv conv = {
      .y = conv_y, .history = history, .weight = taps, .sequences = sequences, .a = {.W = W, .C = C}};
  recorder->functions->recorder_begin(recorder, true, NULL);
  for (uint32_t i = 0; i < dispatches; i++) {
    struct tensor x = side[i % 2], y = side[1 - i % 2];
    const struct linear of = {.y = y, .w = matrix(rows, p->K, i)};
    x.cols = x.stride = p->K;
    y.cols = y.stride = p->N;
    struct linear_input in = {.x = tensor_as(x, dtype), .eps = 1e-5f}, next = {.x = y, .weight = norm};
    struct norm_ahead ahead = {.estimated = true, .parts = 128};
    norm.cols = norm.stride = p->kind == ADD ? p->N : p->K;
    if (p->kind >= NORMED) in.weight = norm;
    if (dtype == DTYPE_F16) in.h = x, in.ahead = next.ahead = &ahead;
    if (p->kind == ADD) {
      next.h = left[1 - i % 2];
      next.h.cols = next.h.stride = p->N;
      if (dtype == DTYPE_F16) in.x.buffer = left[i % 2].buffer, in.x.offset = left[i % 2].offset;
    }
    if (p->kind == GATED)
      vulkan_linear_glu(recorder, &in, &of, &(struct glu){.y = tensor_as(y, dtype), .activation = ACTIVATION_SILU});
    else if (p->kind == CONVOLVED)
      vulkan_linear_conv(recorder, &in, &of, &(struct linear_conv){.conv = &conv});
    else if (p->kind == ADD)
      vulkan_linear_residual(recorder, y, &in, &of, &next);
    else
      vulkan_linear(recorder, y, &in, &of, false);
  }
  return replay();
}

static void sweep_product(const struct product *p) {
  const struct plan_products own = *plan();
  const uint32_t width = tokens > 4 ? 8 : tokens > 2 ? 4 : tokens;
  plan()->narrow_from = plan()->matvec_below = tokens + 1;
  plan()->matvec_sets = 1; // not swept; the last row has the plan's
  const struct plan_matvec chosen = plan_matvec(&own, p->K, p->N, width, p->kind >= NORMED, p->kind == GATED);
  double best = 1e30;
  if (2ull * p->N * p->K * (p->kind == GATED ? 2 : 1) > weight_bytes) return;
  printf("\n%s, %u x %u, %u token%s\n%8s %6s %8s %9s %8s\n", p->name, p->N, p->K, tokens, tokens > 1 ? "s" : "",
         "lanes", "rows", "unroll", "us", "GB/s");
  for (uint32_t lanes = own.matvec_lanes; lanes <= own.matvec_most_lanes; lanes *= 2)
    for (uint32_t rows = p->kind == GATED ? 2 : 1; rows <= 8; rows *= 2)
      for (uint32_t unroll = 1; unroll <= 8; unroll *= 2) {
        plan()->matvec_lanes = plan()->matvec_most_lanes = lanes;
        plan()->matvec_rows = plan()->matvec_most_rows = rows;
        plan()->matvec_unroll = unroll * width;
        struct plan_matvec m = plan_matvec(plan(), p->K, p->N, width, p->kind >= NORMED, p->kind == GATED);
        if (m.rows * (p->kind == GATED ? 2 : 1) != rows) continue; // more than the kernel's sums
        double us = time_product(p, DTYPE_F32);
        bool ours = m.lanes == chosen.lanes && m.rows == chosen.rows && m.unroll == chosen.unroll && chosen.sets == 1;
        printf("%8u %6u %8u %9.2f %8.0f%s%s\n", m.lanes, m.rows, m.unroll, us,
               2e-3 * p->N * p->K * (p->kind == GATED ? 2 : 1) / us, ours ? "  plan" : "",
               us < best ? "  best yet" : "");
        if (us < best) best = us;
      }
  *plan() = own;
  plan()->narrow_from = plan()->matvec_below = tokens + 1;
  if (chosen.sets > 1)
    printf("%8u %6s %8u %9.2f  plan, %u sets\n", chosen.lanes, "", chosen.unroll, time_product(p, DTYPE_F32),
           chosen.sets);
  *plan() = own;
}

// What can be chosen of matmul_narrow, each from a list.
enum { TILES, PARTS, STEP, CHOICES };
static const uint32_t choices[CHOICES][5] = {{1, 2, 3, 4}, {1, 2, 4, 8, 16}, {16, 32, 64, 128}};

static bool narrow_fits(const struct plan_products *own, const struct product *p, const uint32_t n[CHOICES],
                        struct plan_narrow *m) {
  const uint32_t rows = p->N * (p->kind == GATED ? 2 : 1);
  struct plan_products *now = plan();
  for (int c = 0; c < CHOICES; c++)
    if (!n[c]) return false; // past a list's end
  *now = *own;
  now->narrow_from = 1;
  now->narrow_tiles = n[TILES];
  now->narrow_parts = n[PARTS];
  now->narrow_step = n[STEP];
  return plan_matmul_narrow(now, tokens, rows, p->K, m) && m->tiles_n == n[TILES] && m->parts == n[PARTS] &&
         m->step == n[STEP];
}

static double time_narrow(const struct plan_products *own, const struct product *p, const uint32_t n[CHOICES],
                          double best) {
  struct plan_narrow m;
  if (!narrow_fits(own, p, n, &m)) return 1e30;
  double us = time_product(p, DTYPE_F16);
  printf("%8u %6u %6u %9.2f %8.0f%s\n", m.tiles_n, m.parts, m.step, us,
         2e-3 * p->N * p->K * (p->kind == GATED ? 2 : 1) / us, us < best ? "  best yet" : "");
  return us;
}

// From the plan's own choice to the best neighbour along each list, until none is better.
static void search_narrow(const struct plan_products *own, const struct product *p, const struct plan_narrow *m) {
  const uint32_t chosen[CHOICES] = {m->tiles_n, m->parts, m->step};
  int at[CHOICES] = {0};
  bool seen[5][5][5] = {{{false}}};
  for (int c = 0; c < CHOICES; c++)
    while (at[c] < 4 && choices[c][at[c]] != chosen[c]) at[c]++;
  double best = time_narrow(own, p, chosen, 1e30);
  seen[at[0]][at[1]][at[2]] = true;
  for (bool better = true; better;) {
    better = false;
    for (int c = 0; c < CHOICES; c++) {
      int least = at[c];
      for (int i = 0; i < 5; i++) {
        int there[CHOICES];
        uint32_t n[CHOICES];
        memcpy(there, at, sizeof there);
        there[c] = i;
        for (int d = 0; d < CHOICES; d++) n[d] = choices[d][there[d]];
        bool *done = &seen[there[0]][there[1]][there[2]];
        if (*done) continue;
        *done = true;
        double us = time_narrow(own, p, n, best);
        if (us < best) best = us, least = i, better = true;
      }
      at[c] = least;
    }
  }
}

static void sweep_narrow(const struct product *p) {
  const struct plan_products own = *plan();
  const uint32_t rows = p->N * (p->kind == GATED ? 2 : 1);
  struct plan_narrow m;
  double best = 1e30;
  if (!plan_matmul_narrow(&own, tokens, rows, p->K, &m)) return;
  printf("\n%s, %u x %u, %u tokens on matrices\n%8s %6s %6s %9s %8s\n", p->name, p->N, p->K, tokens, "tiles", "parts",
         "step", "us", "GB/s");
  if (!count) search_narrow(&own, p, &m);
  for (int i = 0; i + CHOICES <= count; i += CHOICES) {
    uint32_t n[CHOICES];
    for (int c = 0; c < CHOICES; c++) n[c] = (uint32_t)strtoul(numbers[i + c], NULL, 10);
    double us = time_narrow(&own, p, n, best);
    if (us < best) best = us;
  }
  *plan() = own;
}

// ---------------------------------------------------------------- norms

static void time_norm(uint32_t D) {
  uint64_t at = 0;
  struct tensor x = f32(&at, tokens, D), weight = f32(&at, 1, D), y = tensor_as(f32(&at, tokens, D), DTYPE_F16);
  recorder->functions->recorder_begin(recorder, true, NULL);
  for (uint32_t i = 0; i < dispatches; i++) // all write y, so that each waits for the last
    vulkan_norm(recorder, &(struct norm){.y = y, .x = x, .weight = weight, .eps = 1e-5f}, (struct tensor){0});
  printf("\nnorm, %u of %u: %.2f us\n", tokens, D, replay());
}

// ---------------------------------------------------------------- experts

// One token's 8 of 256 experts of Q4_K, of 35B-A3B, with integers and in f32.
static void time_experts(bool gated) {
  enum { E = 256, CHOSEN = 8, SETS = 16 };
  const uint32_t N = gated ? 512 : 2048, K = gated ? 2048 : 512, rows = gated ? 2 * N : N;
  const enum dtype dtype = DTYPE_TILED_Q4_K;
  const double bytes = (double)CHOSEN * rows * (double)dtype_bytes(dtype, K);
  uint64_t at = 0;
  struct tensor y = f32(&at, CHOSEN, N), x = f32(&at, gated ? 1 : CHOSEN, K), ids = f32(&at, SETS, TENSOR_ALIGN / 4);
  const struct tensor w = {
      .dtype = dtype, .rows = E * rows, .cols = K, .stride = (uint32_t)weight_stride(dtype, K), .buffer = &weights};
  const struct tensor out = gated ? (struct tensor){.rows = CHOSEN, .cols = rows, .stride = rows} : y;
  const struct glu glu = {.y = y, .activation = ACTIVATION_SILU};
  int32_t chosen[SETS * TENSOR_ALIGN / 4];
  if (tensor_bytes(&w) > weight_bytes) return;
  for (uint32_t i = 0; i < SETS * TENSOR_ALIGN / 4; i++) chosen[i] = (int32_t)(i * 97 % E);
  check(backend->functions->buffer_write(backend, &activations, ids.offset, chosen, sizeof chosen));
  for (int dots = 0; dots < 2; dots++) {
    plan()->dots = dots;
    recorder->functions->recorder_begin(recorder, true, NULL);
    for (uint32_t i = 0; i < dispatches; i++) {
      struct tensor set = tensor_rows(ids, i % SETS, 1);
      set.cols = CHOSEN;
      vulkan_experts(recorder, &(struct experts){.y = out, .x = x, .w = w, .ids = set}, &(struct linear_input){.x = x},
                     gated ? &glu : NULL);
    }
    const double us = replay();
    printf("%sexperts, %u of %u, %u x %u: %.2f us, %.0f GB/s\n", dots ? "dots: " : "\nf32: ", CHOSEN, E, rows, K, us,
           1e-3 * bytes / us);
  }
}

// ---------------------------------------------------------------- sample

static void time_sample(const char *name, struct sampling options) {
  enum { V = 248320 };
  uint64_t at = 0;
  struct tensor logits = f32(&at, tokens, V), scratch = f32(&at, tokens, V), seen = f32(&at, tokens, V / 32);
  struct tensor drawn = f32(&at, tokens, 1), options_of = f32(&at, tokens, 8);
  for (uint32_t i = 0; i < tokens; i++)
    check(
        backend->functions->buffer_write(backend, &activations, options_of.offset + 32 * i, &options, sizeof options));
  const struct tensor sequences = {.dtype = DTYPE_I32, .rows = tokens, .cols = 4, .stride = 4, .buffer = &control};
  float *z = malloc(4 * V);
  uint32_t state = 1;
  for (uint32_t i = 0; i < V; i++) {
    state = state * 1664525u + 1013904223u;
    z[i] = (float)(state >> 8) * 0x1p-20f;
  }
  for (uint32_t i = 0; i < tokens; i++)
    check(backend->functions->buffer_write(backend, &activations, logits.offset + 4ull * V * i, z, 4 * V));
  free(z);
  recorder->functions->recorder_begin(recorder, true, NULL);
  for (uint32_t i = 0; i < dispatches; i++)
    vulkan_sample(recorder, &(struct sample){drawn, scratch, sequences, seen, logits, options_of});
  printf("\nsample, %u of %u, %s: %.2f us\n", tokens, V, name, replay());
}

// ---------------------------------------------------------------- delta_step

// The operator alone, as fla's: q, k, v and gates in, output normed and gated, or neither.
static double time_step(uint32_t B, uint32_t heads, uint32_t d, bool normed) {
  const uint32_t E = heads * d;
  const uint64_t bytes = 4ull * B * E * d, copies = weight_bytes / bytes ? weight_bytes / bytes : 1;
  uint64_t at = 0;
  struct tensor qkv = f32(&at, B, 3 * E), ba = f32(&at, B, 2 * heads), gate = f32(&at, B, E), norm = f32(&at, 1, d);
  struct tensor A_log = f32(&at, 1, heads), dt_bias = f32(&at, 1, heads), o = f32(&at, B, E);
  const struct delta_inputs inputs = {
      .x = qkv,
      .ba = ba,
      .A_log = A_log,
      .dt_bias = dt_bias,
      .a = {2 * heads, d, ACTIVATION_IDENTITY, KEY_NORM_L2, heads, heads, 1, true, true}};
  struct delta_rule rule = {.qkv = qkv,
                            .sequences = {.dtype = DTYPE_I32, .rows = B, .cols = 4, .stride = 4, .buffer = &control},
                            .a = {.H = heads, .Hv = heads, .Dk = d, .Dv = d, .n = 1, .scale = 0.1f, .gated = true}};
  const struct gated_norm with = {.y = o,
                                  .x = o,
                                  .gate = gate,
                                  .weight = norm,
                                  .groups = heads,
                                  .group_cols = d,
                                  .place = NORM_FIRST,
                                  .eps = 1e-5f};
  const struct delta_step s = {.o = o, .inputs = &inputs, .rule = &rule, .norm = normed ? &with : NULL};
  recorder->functions->recorder_begin(recorder, true, NULL);
  for (uint32_t i = 0; i < dispatches; i++) { // all write o, so that each waits for the last
    struct delta_step_plan p;
    rule.state = (struct tensor){.rows = B, .cols = E * d, .stride = E * d, .buffer = &weights};
    rule.state.offset = i % copies * bytes;
    if (!vulkan_plan_delta_step(recorder, &s, &p)) return 0;
    vulkan_delta_step(recorder, &s, &p);
  }
  return replay();
}

// Four columns an invocation, over the rows that each may have.
static void sweep_fours(uint32_t B, uint32_t heads, uint32_t d, bool normed) {
  const struct plan_rules own = *rules();
  struct plan_step_fours chosen, p, last = {0};
  double best = 1e30;
  if (4ull * B * heads * d * d > weight_bytes || !plan_step_fours(&own, d, d, B * heads, normed, &chosen)) return;
  printf("\ndelta_step by fours, %u sequence%s, %u heads of %u\n", B, B > 1 ? "s" : "", heads, d);
  printf("%8s %8s %6s %9s %8s\n", "groups", "lanes", "whole", "us", "GB/s");
  for (uint32_t rows = 4; rows <= 64; rows += 4) {
    rules()->step_rows = rules()->step_most_rows = rows;
    if (!plan_step_fours(rules(), d, d, B * heads, normed, &p) || (p.groups == last.groups && p.lanes == last.lanes))
      continue;
    last = p;
    double us = time_step(B, heads, d, normed);
    bool ours = p.groups == chosen.groups && p.lanes == chosen.lanes;
    printf("%8u %8u %6s %9.2f %8.0f%s%s\n", p.groups, p.lanes, normed ? p.whole ? "yes" : "apart" : "no norm", us,
           8e-3 * B * heads * d * d / us, ours ? "  plan" : "", us < best ? "  best yet" : "");
    if (us < best) best = us;
  }
  *rules() = own;
}

static void sweep_step(uint32_t B, uint32_t heads, uint32_t d) {
  const struct plan_rules own = *rules();
  struct plan_step chosen, p;
  double best = 1e30;
  if (4ull * B * heads * d * d > weight_bytes) return;
  plan_step(&own, d, d, 1, 1, &chosen);
  printf("\ndelta_step by columns, %u sequence%s, %u heads of %u\n%8s %8s %6s %9s %8s\n", B, B > 1 ? "s" : "", heads, d,
         "columns", "parts", "whole", "us", "GB/s");
  for (uint32_t most = 128; most <= own.step_lanes; most *= 2)
    for (uint32_t columns = 8; columns <= 64; columns *= 2)
      for (uint32_t rows = 8; rows <= 128; rows *= 2) {
        rules()->step_width = 0;
        rules()->step_lanes = most;
        rules()->rule_columns = columns;
        rules()->rule_rows = rows;
        if (!plan_step(rules(), d, d, 1, 1, &p)) continue;
        if (p.columns * p.sub * 2 <= most || p.columns < columns) continue; // listed with others
        double us = time_step(B, heads, d, true);
        bool ours = p.columns == chosen.columns && p.sub == chosen.sub && p.whole == chosen.whole;
        if (us > 0)
          printf("%8u %8u %6s %9.2f %8.0f%s%s\n", p.columns, p.sub, p.whole ? "yes" : "no", us,
                 8e-3 * B * heads * d * d / us, ours ? "  plan" : "", us < best ? "  best yet" : "");
        if (us > 0 && us < best) best = us;
      }
  *rules() = own;
}

// ---------------------------------------------------------------- devices

static int bench_device(struct instance *instance, VkPhysicalDevice handle, const struct device_caps *caps,
                        const struct plan *own) {
  bench_open(instance, handle, caps, own);
  list.matrices = MATRICES_BEST;
  list.longest = 1;
  weights = bench_buffer(weight_bytes, "weights");
  activations = bench_buffer(64 << 20, "activations");
  check(backend->functions->buffer_create(backend, MEMORY_SHARED, 64 * sizeof(struct sequence), "sequences", &control));
  for (uint32_t i = 0; i < 64; i++) ((struct sequence *)control.mapped)[i] = (struct sequence){i, 1, 0, i};
  printf("%s, %s\n", caps->name, caps->driver);
  for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
    if (!strstr(products[i].name, what)) continue;
    if (tokens <= 8 && !count) sweep_product(&products[i]);
    if (tokens > 1) sweep_narrow(&products[i]);
  }
  if (strstr("norm", what)) time_norm(2048);
  if (strstr("experts", what)) time_experts(true), time_experts(false);
  if (strstr("sample", what) && tokens <= 16) {
    time_sample("greedy", (struct sampling){0});
    time_sample("top-k 20, top-p 0.95", (struct sampling){.temperature = 1, .top_k = 20, .top_p = 0.95f});
    time_sample("top-p 0.95", (struct sampling){.temperature = 1, .top_p = 0.95f});
  }
  const uint32_t steps[][3] = {{1, 16, 128}, {1, 48, 128}, {4, 16, 128}, {32, 16, 128}, {1, 8, 256}, {32, 8, 256},
                               {1, 16, 64},  {32, 32, 64}, {32, 16, 96},  {32, 16, 76}};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    char name[2][64];
    for (int n = 0; n < 2; n++)
      snprintf(name[n], sizeof name[n], "delta_step by %s, %u x %u of %u", n ? "fours" : "columns", steps[i][0],
               steps[i][1], steps[i][2]);
    if (strstr(name[0], what)) sweep_step(steps[i][0], steps[i][1], steps[i][2]);
    for (int n = 1; n >= 0 && strstr(name[1], what); n--) sweep_fours(steps[i][0], steps[i][1], steps[i][2], n);
  }
  backend->functions->buffer_free(backend, &weights);
  backend->functions->buffer_free(backend, &activations);
  backend->functions->buffer_free(backend, &control);
  bench_close();
  return 0;
}

int main(int argc, char **argv) {
  what = argc > 1 ? argv[1] : "";
  tokens = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
  weight_bytes = (argc > 3 ? strtoull(argv[3], NULL, 10) : 600) << 20;
  dispatches = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 160;
  if (!weight_bytes || !tokens || tokens > 64 || !dispatches) {
    fprintf(stderr, "usage: bench_decode [WHAT [TOKENS 1 to 64 [MIB [DISPATCHES [TILES PARTS STEP]...]]]]\n");
    return 2;
  }
  count = argc > 5 ? argc - 5 : 0;
  numbers = argv + 5;
  return bench_vulkan_devices(bench_device);
}
