// test_backward: gradients of single operations against float64 (tests/vectors/grad/ops.safetensors): those by states
// before a call, and of heads of unusual sizes. Whole models are in test_learner.c.
//
// DELTAIC_REFERENCE names a folder whose reference/grad/ops has all operations; then all are compared.
#include "backward_cpu.h"
#include "checkpoint.h"
#include "device_handle.h"
#include "vulkan_backend.h"

#include <jansson.h>

// Last: its macro fail() must not meet the declaration of ours.
#include "devices.h"

enum { FLOATS = 1 << 20 };

static struct checkpoint *file;
static struct backend *backend;
static enum matrices matrices; // of the lists
static double errors, norms;   // squares, of all gradients since they were cleared

// One operation's tensors: values and states in memory, and a walk over a list of this operation.
struct setup {
  const char *name;
  struct oplist list;
  struct walk walk;
  struct buffer values, gradients, states, before, state_gradients;
  struct buffer sequence_buffer;
  uint64_t used; // floats of the values
};

// Memory that the host and kernels see.
static struct buffer floats(uint64_t n) {
  struct buffer b;
  assert_ok(backend->functions->buffer_create(backend, MEMORY_SHARED, n * sizeof(float), "a test", &b));
  memset(b.mapped, 0, n * sizeof(float));
  return b;
}

static struct setup *setup(const char *name) {
  struct setup *s = calloc(1, sizeof *s);
  s->name = name;
  s->values = floats(FLOATS);
  s->gradients = floats(FLOATS);
  s->states = floats(FLOATS);
  s->before = floats(FLOATS);
  s->state_gradients = floats(FLOATS);
  s->sequence_buffer = floats(16);
  assert_ok(backend->functions->recorder_create(backend, &s->walk.c));
  s->walk.functions = walk_functions(backend);
  s->walk.list = &s->list;
  s->walk.values = &s->values;
  s->walk.gradients = &s->gradients;
  s->walk.states = &s->states;
  s->walk.before = &s->before;
  s->walk.state_gradients = &s->state_gradients;
  oplist_begin(&s->list);
  s->list.matrices = matrices;
  return s;
}

static void free_setup(struct setup *s) {
  struct buffer *const all[] = {&s->values, &s->gradients,       &s->states,
                                &s->before, &s->state_gradients, &s->sequence_buffer};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) backend->functions->buffer_free(backend, all[i]);
  walk_free(&s->walk);
  backend->functions->recorder_free(s->walk.c);
  oplist_free(&s->list);
  free(s);
}

static struct file_tensor *find(const struct setup *s, const char *tensor) {
  char name[64];
  snprintf(name, sizeof name, "%s.%s", s->name, tensor);
  return checkpoint_find(file, name);
}

static uint64_t elements(const struct file_tensor *t) {
  uint64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->shape[i];
  return n;
}

static uint32_t size(const struct setup *s, const char *tensor, int i) { return (uint32_t)find(s, tensor)->shape[i]; }

static struct tensor matrix(struct buffer *b, uint64_t at, uint32_t rows, uint32_t cols) {
  return (struct tensor){.rows = rows, .cols = cols, .stride = cols, .buffer = b, .offset = at * sizeof(float)};
}

static struct tensor value(struct setup *s, uint32_t rows, uint32_t cols) {
  const struct tensor t = matrix(&s->values, s->used, rows, cols);
  s->used += round_up((uint64_t)rows * cols, TENSOR_ALIGN / sizeof(float));
  assert_true(s->used <= FLOATS);
  return t;
}

// Columns first ... of t are the file's tensor; false if the file has none.
static bool fill(const struct setup *s, struct tensor t, uint32_t first, const char *tensor) {
  const struct file_tensor *from = find(s, tensor);
  if (!from) return false;
  const uint32_t cols = (uint32_t)(elements(from) / t.rows);
  assert_true(first + cols <= t.cols);
  for (uint32_t r = 0; r < t.rows; r++) file_tensor_f32(from, (uint64_t)r * cols, cols, f32_row(&t, r) + first);
  return true;
}

static struct tensor filled(struct setup *s, uint32_t rows, const char *tensor) {
  const struct tensor t = value(s, rows, (uint32_t)(elements(find(s, tensor)) / rows));
  fill(s, t, 0, tensor);
  return t;
}

static struct tensor gradient(const struct setup *s, struct tensor t) { return walk_gradient(&s->walk, t); }

static void compare(const struct setup *s, struct tensor got, uint32_t first, const char *tensor) {
  const struct file_tensor *want = find(s, tensor);
  const uint32_t cols = (uint32_t)(elements(want) / got.rows);
  double error = 0, norm = 0;
  for (uint32_t r = 0; r < got.rows; r++)
    for (uint32_t c = 0; c < cols; c++) {
      float x;
      file_tensor_f32(want, (uint64_t)r * cols + c, 1, &x);
      const double d = (double)f32_row(&got, r)[first + c] - x;
      error += d * d;
      norm += (double)x * x;
    }
  print_message("  %-18s %-10s %.1e\n", s->name, tensor, sqrt(error / norm));
  errors += error;
  norms += norm;
  assert_true(sqrt(error) <= (matrices ? 1e-2 : 1e-5) * sqrt(norm));
}

static struct tensor sequences(struct setup *s, uint32_t B, uint32_t T) {
  assert_true(B <= 4);
  for (uint32_t b = 0; b < B; b++)
    ((struct sequence *)s->sequence_buffer.mapped)[b] = (struct sequence){b * T, T, 0, b};
  s->list.longest = T;
  return matrix(&s->sequence_buffer, 0, B, 4);
}

// The list itself does not run: a Vulkan recorder only learns which it is.
static void walk(struct setup *s) {
  const struct backend_functions *f = backend->functions;
  if (s->walk.functions == &backward_on_vulkan) ((struct vulkan_recorder *)s->walk.c)->list = &s->list;
  f->recorder_begin(s->walk.c, false, NULL);
  assert_ok(walk_back(&s->walk));
  assert_ok(f->recorder_run(s->walk.c));
}

// ---------------------------------------------------------------- the cases

static double number(const char *name, const char *key) {
  json_t *o = json_loads(checkpoint_metadata(file, name), 0, NULL), *v = json_object_get(o, key);
  const double x = json_is_true(v) ? 1 : json_number_value(v);
  json_decref(o);
  return x;
}

static void delta_rule(const char *name) {
  struct setup *s = setup(name);
  const uint32_t B = size(s, "k", 0), T = size(s, "k", 1), n = size(s, "k", 2), H = size(s, "k", 3),
                 Dk = size(s, "k", 4), Hv = size(s, "v", 3), Dv = size(s, "v", 4), r = (uint32_t)number(name, "r");
  const uint32_t k_at = H * Dk, v_at = k_at * (1 + n), N = B * T;
  const bool gated = number(name, "gated") > 0, fixed = r < 2 || number(name, "dynamic") == 0;
  const struct delta_args a = {.H = H,
                               .Hv = Hv,
                               .Dk = Dk,
                               .Dv = Dv,
                               .n = n,
                               .r = r ? r : 1,
                               .scale = (float)number(name, "scale"),
                               .gated = gated,
                               .fixed_mask = fixed};
  const struct tensor none = {0};
  const struct delta_rule rule = {.o = value(s, N, Hv * Dv),
                                  .state = matrix(&s->states, 0, B, Hv * Dk * Dv),
                                  .qkv = value(s, N, v_at + n * Hv * Dv),
                                  .beta = filled(s, N, "beta"),
                                  .g = gated ? filled(s, N, "g") : none,
                                  .mask = r ? filled(s, fixed ? 1 : N, "M") : none,
                                  .sequences = sequences(s, B, T),
                                  .a = a};
  fill(s, rule.qkv, 0, "q");
  fill(s, rule.qkv, k_at, "k");
  fill(s, rule.qkv, v_at, "v");
  fill(s, walk_before(&s->walk, rule.state), 0, "S0");
  fill(s, gradient(s, rule.state), 0, "dST");
  fill(s, gradient(s, rule.o), 0, "do");
  op_delta_rule(&s->list, &rule);
  walk(s);
  compare(s, gradient(s, rule.qkv), 0, "dq");
  compare(s, gradient(s, rule.qkv), k_at, "dk");
  compare(s, gradient(s, rule.qkv), v_at, "dv");
  compare(s, gradient(s, rule.beta), 0, "dbeta");
  if (gated) compare(s, gradient(s, rule.g), 0, "dg");
  if (r) compare(s, gradient(s, rule.mask), 0, "dM");
  if (find(s, "dS0")) compare(s, gradient(s, rule.state), 0, "dS0");
  free_setup(s);
}

static void attention(const char *name, uint32_t window) {
  struct setup *s = setup(name);
  const uint32_t T = size(s, "q", 0), heads = size(s, "q", 1), kv = size(s, "k", 1), d = size(s, "q", 2);
  const struct attention op = {.o = value(s, T, heads * d),
                               .qkv = value(s, T, (heads + 2 * kv) * d),
                               .sequences = sequences(s, 1, T),
                               .a = {.heads = heads, .kv_heads = kv, .d = d, .window = window}};
  fill(s, op.qkv, 0, "q");
  fill(s, op.qkv, heads * d, "k");
  fill(s, op.qkv, (heads + kv) * d, "v");
  fill(s, gradient(s, op.o), 0, "do");
  op_attention(&s->list, &op);
  walk(s);
  compare(s, gradient(s, op.qkv), 0, "dq");
  compare(s, gradient(s, op.qkv), heads * d, "dk");
  compare(s, gradient(s, op.qkv), (heads + kv) * d, "dv");
  free_setup(s);
}

// Those that are in the file; attention only in the reference's. Whole models have all of them too.
static void rules_match(deltaic_device *device) {
  backend = device->backend;
  static const char *const names[] = {"delta",          "delta_states", "delta_neg",        "gated", "gated_states",
                                      "gated_hard",     "gated_batch",  "gated_one",        "gva",   "product3",
                                      "gated_product2", "hh2_static",   "hh4_gated_dynamic"};
  int ran = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (checkpoint_metadata(file, names[i])) {
      delta_rule(names[i]);
      ran++;
    }
  if (checkpoint_metadata(file, "attention")) attention("attention", 0);
  if (checkpoint_metadata(file, "attention_window")) attention("attention_window", 30);
  assert_true(ran > 0);
}

// ---------------------------------------------------------------- on cooperative matrices, by chunks

static bool on_matrices(const deltaic_device *device) {
  backend = device->backend;
  return backend->functions->name[0] == 'v' && vulkan_device(backend)->plan.matrix_mixers;
}

// Those that are in the file.
static void rules_on_matrices_match(deltaic_device *device) {
  static const char *const names[] = {"delta",        "delta_states", "delta_neg",     "gated",
                                      "gated_states", "gated_hard",   "gated_batch",   "gated_one",
                                      "gva",          "product3",     "gated_product2"};
  int ran = 0;
  if (!on_matrices(device)) return;
  // Without the reference's folder one form, as each takes half a minute of compiling; made rules take all.
  for (matrices = getenv("DELTAIC_REFERENCE") ? MATRICES_PLAIN : MATRICES_BEST; matrices <= MATRICES_BEST; matrices++)
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
      if (checkpoint_metadata(file, names[i])) {
        ran++;
        errors = norms = 0;
        delta_rule(names[i]);
        print_message("  %-18s whole %.1e\n", names[i], sqrt(errors / norms));
        assert_true(sqrt(errors) <= 2e-3 * sqrt(norms));
      }
  matrices = MATRICES_NONE;
  assert_true(ran > 0);
}

enum { TEXTS = 3, MADE_T = 58 };
enum { SMALL_BETAS = 8 };
static const float *small_betas; // factors of beta, in turn; NULL: 1

static void scale_and_add(struct tensor t, float by, float x) { // times `by`, then plus x
  for (uint32_t r = 0; r < t.rows; r++)
    for (uint32_t c = 0; c < t.cols; c++) f32_row(&t, r)[c] = (by ? by * f32_row(&t, r)[c] : 0) + x;
}

// Kernels are told that nothing has added to the gradient of qkv yet: they overwrite what is there. If `adds`,
// something has, which is taken away again.
static bool adds;
static void walk_rule(struct setup *s, const struct delta_rule *rule) {
  const struct tensor dqkv = gradient(s, rule->qkv);
  if (s->walk.functions != &backward_on_vulkan) {
    walk(s);
    return;
  }
  scale_and_add(dqkv, 0, adds ? 64 : NAN);
  ((struct vulkan_recorder *)s->walk.c)->list = &s->list;
  backend->functions->recorder_begin(s->walk.c, false, NULL);
  s->walk.fresh = adds ? 0 : 1u << 2;
  s->walk.functions->delta_rule(&s->walk, rule);
  assert_ok(s->walk.status);
  assert_ok(backend->functions->recorder_run(s->walk.c));
  if (adds) scale_and_add(dqkv, 1, -64);
}

// A call with states before and gradients after it. Gradients of o come near f16's largest number, as they do before an
// output norm, and those of a head's are far smaller. The keys of some tokens repeat.
static struct setup *made_rule(struct backend *on, const struct delta_args *a, struct delta_rule *rule) {
  static const uint32_t lengths[TEXTS] = {37, 1, 20};
  uint32_t seed = 7;
  backend = on;
  struct setup *s = setup("made");
  const uint32_t values_at = a->H * a->Dk * (1 + a->n), none_at = a->H * a->Dk;
  const struct tensor none = {0};
  *rule = (struct delta_rule){.a = *a};
  rule->qkv = value(s, MADE_T, values_at + a->n * a->Hv * a->Dv);
  rule->beta = value(s, MADE_T, a->n * a->Hv);
  rule->g = a->gated ? value(s, MADE_T, a->Hv) : none;
  rule->o = value(s, MADE_T, a->Hv * a->Dv);
  rule->state = matrix(&s->states, 0, TEXTS, a->Hv * a->Dk * a->Dv);
  rule->sequences = matrix(&s->sequence_buffer, 0, TEXTS, 4);
  for (uint32_t b = 0, row = 0; b < TEXTS; row += lengths[b++])
    ((struct sequence *)s->sequence_buffer.mapped)[b] = (struct sequence){row, lengths[b], 0, TEXTS - 1 - b};
  s->list.longest = lengths[0];
  const struct {
    struct tensor t;
    float centre, range;
  } all[] = {{rule->qkv, 0, 1},
             {rule->beta, 1, 0.9f},
             {rule->g, -1, 1},
             {gradient(s, rule->o), 0, 30000},
             {walk_before(&s->walk, rule->state), 0, 0.5f},
             {gradient(s, rule->state), 0, 3000}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    for (uint32_t r = 0; all[i].t.buffer && r < all[i].t.rows; r++)
      for (uint32_t c = 0; c < all[i].t.cols; c++) {
        seed = seed * 1664525u + 1013904223u;
        const float x = (float)(int32_t)seed * 0x1p-31f;
        f32_row(&all[i].t, r)[c] = all[i].centre + all[i].range * x;
        if (i == 3) f32_row(&all[i].t, r)[c] *= c < a->Dv ? x * x : 1e-6f;
        if (i == 1 && small_betas) f32_row(&all[i].t, r)[c] *= small_betas[(r + c) % SMALL_BETAS];
        if (i == 0 && c < values_at) f32_row(&all[i].t, r)[c] *= 1.7f / sqrtf((float)a->Dk);
        if (i == 0 && c >= none_at && c < values_at && r % 9 == 4)
          f32_row(&all[i].t, r)[c] = f32_row(&all[i].t, r - 1)[c];
      }
  op_delta_rule(&s->list, rule);
  walk_rule(s, rule);
  return s;
}

static void compare_with(const char *name, struct tensor got, struct tensor want, uint32_t first, uint32_t cols) {
  double error = 0, norm = 0;
  for (uint32_t r = 0; got.buffer && r < got.rows; r++)
    for (uint32_t c = first; c < first + cols; c++) {
      const double x = f32_row(&want, r)[c], d = f32_row(&got, r)[c] - x;
      error += d * d;
      norm += x * x;
    }
  print_message("  %-8s %.1e\n", name, norm ? sqrt(error / norm) : 0);
  assert_true(sqrt(error) <= 2e-3 * sqrt(norm));
}

// A rule as it was made on a device, or on its twin.
struct made {
  struct setup *s;
  struct delta_rule rule;
};

static void compare_all(const struct delta_args *a, const struct made *got, const struct made *want) {
  const uint32_t keys = a->H * a->Dk, v_at = keys * (1 + a->n);
  const struct tensor dqkv = gradient(got->s, got->rule.qkv), dqkv_twin = gradient(want->s, want->rule.qkv);
  compare_with("dq", dqkv, dqkv_twin, 0, keys);
  compare_with("dk", dqkv, dqkv_twin, keys, a->n * keys);
  for (uint32_t h = 0; h < a->n * a->Hv; h++) compare_with("dv", dqkv, dqkv_twin, v_at + h * a->Dv, a->Dv);
  compare_with("dbeta", gradient(got->s, got->rule.beta), gradient(want->s, want->rule.beta), 0, a->n * a->Hv);
  compare_with("dg", gradient(got->s, got->rule.g), gradient(want->s, want->rule.g), 0, a->Hv);
  compare_with("dstate", gradient(got->s, got->rule.state), gradient(want->s, want->rule.state), 0,
               want->rule.state.cols);
}

static void compare_betas(const struct delta_args *a, const struct made *got, const struct made *want) {
  for (uint32_t h = 0; h < a->n * a->Hv; h++)
    compare_with("dbeta", gradient(got->s, got->rule.beta), gradient(want->s, want->rule.beta), h, 1);
}

// The fourth rule is of a card with few registers, whose subgroups share the steps of a block. The last two's heads
// fill tiles, so that gradients of a whole block are written by fours, and a subgroup has two tiles of columns; the
// last one adds to gradients.
static void compare_made(deltaic_device *device,
                         void (*look)(const struct delta_args *a, const struct made *got, const struct made *want)) {
  struct backend *cpu;
  assert_ok(backend_open_cpu(1, &cpu));
  struct plan *plan = &vulkan_device(device->backend)->plan;
  const uint32_t sums = plan->matrix_sums;
  for (int i = 0; i < 6; i++) {
    plan->matrix_sums = i == 3 ? 4 : sums;
    const bool whole = i >= 4;
    adds = i == 5;
    const struct delta_args a = {.H = 2,
                                 .Hv = 4,
                                 .Dk = whole ? 64 : 11,
                                 .Dv = whole ? 32 : 21,
                                 .n = i == 2 ? 2 : 1,
                                 .r = 1,
                                 .scale = 0.3f,
                                 .gated = i != 1};
    struct made got, want;
    matrices = MATRICES_NONE;
    want.s = made_rule(cpu, &a, &want.rule);
    matrices = i == 0 ? MATRICES_PLAIN : MATRICES_BEST;
    got.s = made_rule(device->backend, &a, &got.rule);
    look(&a, &got, &want);
    backend = cpu;
    free_setup(want.s);
    backend = device->backend;
    free_setup(got.s);
  }
  plan->matrix_sums = sums;
  adds = false;
  matrices = MATRICES_NONE;
  cpu->functions->close(cpu);
}

// Heads that fill no tile, texts that fill no block, value heads that share keys, states, and gradients of any size.
static void made_rules_on_matrices_match_their_twin(deltaic_device *device) {
  if (on_matrices(device)) compare_made(device, compare_all);
}

// V' and Z have the factor beta, and the gradient of beta has not.
static void small_betas_on_matrices_match_their_twin(deltaic_device *device) {
  static const float factors[SMALL_BETAS] = {1, 1e-2f, 1e-3f, 1e-4f, 1e-5f, 1e-6f, 1e-8f, 0};
  if (!on_matrices(device)) return;
  small_betas = factors;
  compare_made(device, compare_betas);
  small_betas = NULL;
}

static void mamba2_matches(deltaic_device *device) {
  backend = device->backend;
  struct setup *s = setup("mamba2");
  const uint32_t T = size(s, "x", 0), heads = size(s, "x", 1), P = size(s, "x", 2), N = size(s, "B", 1);
  const struct tensor A_log = filled(s, 1, "A_log"), dt = filled(s, T, "dt"), g = value(s, T, heads);
  const struct mamba2 rule = {.y = value(s, T, heads * P),
                              .state = matrix(&s->states, 0, 1, heads * N * P),
                              .xBC = value(s, T, heads * P + 2 * N),
                              .dt = dt,
                              .g = g,
                              .D = filled(s, 1, "D"),
                              .sequences = sequences(s, 1, T),
                              .a = {.heads = heads, .P = P, .N = N, .groups = 1}};
  for (uint32_t t = 0; t < T; t++)
    for (uint32_t h = 0; h < heads; h++) f32_row(&g, t)[h] = -expf(f32_row(&A_log, 0)[h]) * f32_row(&dt, t)[h];
  fill(s, rule.xBC, 0, "x");
  fill(s, rule.xBC, heads * P, "B");
  fill(s, rule.xBC, heads * P + N, "C");
  fill(s, walk_before(&s->walk, rule.state), 0, "S0");
  fill(s, gradient(s, rule.state), 0, "dST");
  fill(s, gradient(s, rule.y), 0, "dy");
  op_mamba2(&s->list, &rule);
  walk(s);
  compare(s, gradient(s, rule.xBC), 0, "dx");
  compare(s, gradient(s, rule.xBC), heads * P, "dB");
  compare(s, gradient(s, rule.xBC), heads * P + N, "dC");
  compare(s, gradient(s, rule.D), 0, "dD");
  compare(s, gradient(s, rule.state), 0, "dS0");
  // dt is an input of the decay too: ddt = its own gradient + A dg.
  const struct tensor ddt = gradient(s, dt), dg = gradient(s, g);
  for (uint32_t t = 0; t < T; t++)
    for (uint32_t h = 0; h < heads; h++) f32_row(&ddt, t)[h] -= expf(f32_row(&A_log, 0)[h]) * f32_row(&dg, t)[h];
  compare(s, ddt, 0, "ddt");
  free_setup(s);
}

// The file's state holds W inputs before the call, channel by channel; ours W - 1, oldest first.
static void convolution_matches(deltaic_device *device) {
  backend = device->backend;
  struct setup *s = setup("short_conv");
  const uint32_t T = size(s, "x", 0), C = size(s, "w", 0), W = size(s, "w", 1);
  const struct conv conv = {.y = value(s, T, C),
                            .history = matrix(&s->states, 0, 1, (W - 1) * C),
                            .x = filled(s, T, "x"),
                            .weight = value(s, W, C),
                            .bias = filled(s, 1, "bias"),
                            .sequences = sequences(s, 1, T),
                            .a = {.W = W, .C = C}};
  const struct tensor w = filled(s, C, "w"), old = filled(s, C, "state"), history = walk_before(&s->walk, conv.history);
  for (uint32_t c = 0; c < C; c++)
    for (uint32_t j = 0; j < W; j++) {
      f32_row(&conv.weight, j)[c] = f32_row(&w, c)[j];
      if (j) f32_row(&history, 0)[(j - 1) * C + c] = f32_row(&old, c)[j];
    }
  fill(s, gradient(s, conv.y), 0, "dy");
  op_conv(&s->list, &conv);
  walk(s);
  compare(s, gradient(s, conv.x), 0, "dx");
  compare(s, gradient(s, conv.bias), 0, "dbias");
  const struct tensor dw = gradient(s, conv.weight), dhistory = gradient(s, conv.history);
  for (uint32_t c = 0; c < C; c++)
    for (uint32_t j = 0; j < W; j++) {
      f32_row(&w, c)[j] = f32_row(&dw, j)[c];
      f32_row(&old, c)[j] = j ? f32_row(&dhistory, 0)[(j - 1) * C + c] : 0;
    }
  compare(s, w, 0, "dw");
  compare(s, old, 0, "dstate");
  free_setup(s);
}

// A call shorter than the history: part of the history stays, and so does its gradient.
static void a_short_call_passes_the_gradient_of_its_history(deltaic_device *device) {
  enum { W = 4, C = 2, T = 2 };
  backend = device->backend;
  struct setup *s = setup("short_conv");
  const struct conv conv = {.y = value(s, T, C),
                            .history = matrix(&s->states, 0, 1, (W - 1) * C),
                            .x = value(s, T, C),
                            .weight = value(s, W, C),
                            .sequences = sequences(s, 1, T),
                            .a = {.W = W, .C = C, .silu_from = C}};
  const struct tensor after = gradient(s, conv.history), dx = gradient(s, conv.x);
  for (uint32_t i = 0; i < (W - 1) * C; i++) f32_row(&after, 0)[i] = (float)(i + 1);
  op_conv(&s->list, &conv);
  walk(s);
  // Row 2 of the history before is row 0 of the history after; rows 1 and 2 after are the call's inputs.
  for (uint32_t i = 0; i < (W - 1) * C; i++)
    assert_float_equal(f32_row(&after, 0)[i], i < T * C ? 0 : i - T * C + 1, 0);
  for (uint32_t i = 0; i < T * C; i++) assert_float_equal(f32_row(&dx, 0)[i], i + C + 1, 0);
  free_setup(s);
}

// ---------------------------------------------------------------- products

static struct tensor random_matrix(struct setup *s, uint32_t rows, uint32_t cols, uint32_t seed) {
  // Weights, whose rows begin at multiples of 8.
  const uint32_t stride = (cols + 7) / 8 * 8;
  struct tensor t = value(s, rows, stride);
  t.cols = cols;
  for (uint32_t r = 0; r < rows; r++)
    for (uint32_t c = 0; c < cols; c++) {
      seed = seed * 1664525 + 1013904223;
      f32_row(&t, r)[c] = (float)(seed >> 8) / (1 << 23) - 1;
    }
  return t;
}

// y (rows, cols) += sum over k of left[i][k] right[j][k]; a flag reads the transpose.
static double product_error(struct tensor y, struct tensor left, bool turn_left, struct tensor right, bool turn_right) {
  const uint32_t n = turn_left ? left.rows : left.cols;
  double error = 0, norm = 0;
  for (uint32_t i = 0; i < y.rows; i++)
    for (uint32_t j = 0; j < y.cols; j++) {
      double sum = 0;
      for (uint32_t k = 0; k < n; k++)
        sum += (double)(turn_left ? f32_row(&left, k)[i] : f32_row(&left, i)[k]) *
               (turn_right ? f32_row(&right, k)[j] : f32_row(&right, j)[k]);
      error += (f32_row(&y, i)[j] - sum) * (f32_row(&y, i)[j] - sum);
      norm += sum * sum;
    }
  return sqrt(error / norm);
}

static void begin_products(struct setup *s, enum matrices use) {
  s->list.matrices = use;
  backend->functions->recorder_begin(s->walk.c, false, NULL);
  backend->functions->recorder_list(s->walk.c, &s->list); // of no operations
}

// In f16, rows at multiples of 8.
static struct tensor half_value(struct setup *s, uint32_t rows, uint32_t cols) {
  const uint32_t stride = (cols + 7) / 8 * 8;
  struct tensor t = value(s, rows, stride / 2);
  t.dtype = DTYPE_F16, t.cols = cols, t.stride = stride;
  return t;
}

// Sizes with and without remainders, and few rows, which other kernels compute.
static void products(uint32_t T, uint32_t N, uint32_t K, enum matrices use, double limit) {
  struct setup *s = setup("products");
  const struct tensor x = random_matrix(s, T, K, 1), w = random_matrix(s, N, K, 2), dy = random_matrix(s, T, N, 3);
  const struct tensor y = value(s, T, N), dx = value(s, T, K), dw = value(s, N, K);
  const struct walk_functions *f = s->walk.functions;
  const bool half = use && N % 8 == 0; // a dy in f16, as a gated unit's
  struct tensor dy16 = half_value(s, T, N), x16 = half_value(s, T, K);
  for (uint32_t t = 0; t < T; t++)
    for (uint32_t k = 0; k < K; k++) f32_row(&dx, t)[k] = NAN;
  begin_products(s, use);
  f->linear(&s->walk, y, x, w);
  if (half) f->round(&s->walk, dy16, dy);
  f->times(&s->walk, dx, half ? dy16 : dy, w, false);
  if (use) f->round(&s->walk, x16, x);
  f->add_outer(&s->walk, dw, half ? dy16 : dy, use ? x16 : x);
  assert_ok(s->walk.status);
  assert_ok(backend->functions->recorder_run(s->walk.c));
  const double off[] = {product_error(y, x, false, w, false), product_error(dx, dy, false, w, true),
                        product_error(dw, dy, true, x, true)};
  for (int i = 0; i < 3; i++) {
    if (off[i] > limit) print_message("%u x %u x %u, product %d: %.1e\n", T, N, K, i, off[i]);
    assert_true(off[i] <= limit);
  }
  free_setup(s);
}

static void products_match(deltaic_device *device) {
  backend = device->backend;
  const struct walk_functions *f = walk_functions(backend);
  const bool rounds = f->rounds && f->rounds(backend);
  static const uint32_t sizes[][3] = {{1, 33, 40},   {3, 5, 9},    {37, 50, 70},
                                      {130, 64, 96}, {64, 3, 200}, {300, 136, 72}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    products(sizes[i][0], sizes[i][1], sizes[i][2], MATRICES_NONE, 1e-6);
    if (rounds) products(sizes[i][0], sizes[i][1], sizes[i][2], MATRICES_BEST, 1e-3);
  }
}

// f16's largest number is 65504. A gradient beyond it must not become one that looks right.
static void what_overflows_is_not_finite(deltaic_device *device) {
  backend = device->backend;
  const struct walk_functions *f = walk_functions(backend);
  if (!f->rounds || !f->rounds(backend)) return;
  struct setup *s = setup("overflow");
  const struct tensor w = random_matrix(s, 40, 48, 2), dy = random_matrix(s, 40, 40, 3), dx = value(s, 40, 48);
  const struct tensor dw = value(s, 40, 48), x = random_matrix(s, 40, 48, 4);
  f32_row(&dy, 5)[7] = -65520;
  f32_row(&dy, 6)[7] = 65519;
  begin_products(s, MATRICES_BEST);
  f->times(&s->walk, dx, dy, w, true);
  f->add_outer(&s->walk, dw, dy, x);
  assert_ok(s->walk.status);
  assert_ok(backend->functions->recorder_run(s->walk.c));
  for (uint32_t t = 0; t < dx.rows; t++)
    for (uint32_t k = 0; k < dx.cols; k++) {
      assert_int_equal(isfinite(f32_row(&dx, t)[k]) != 0, t != 5);
      assert_int_equal(isfinite(f32_row(&dw, t)[k]) != 0, t != 7);
    }
  free_setup(s);
}

// ---------------------------------------------------------------- activations

static void slopes_are_those_of_the_activations(void **state) {
  static const float at[] = {-4, -1, -0.2f, 0.3f, 1.5f, 5};
  for (int a = ACTIVATION_IDENTITY; a <= ACTIVATION_SIGMOID; a++)
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
      const float h = 1e-2f, z = at[i];
      const double by = (double)cpu_activate(a, z + h) - cpu_activate(a, z - h),
                   twice = (double)cpu_activate(a, z + 2 * h) - cpu_activate(a, z - 2 * h);
      assert_float_equal(activation_slope(a, z), (8 * by - twice) / (12 * h), 2e-4);
    }
}

static int open_all(void **state) {
  const char *reference = getenv("DELTAIC_REFERENCE");
  char path[512];
  snprintf(path, sizeof path, "%s%s", reference ? reference : TESTS_DIR "/vectors/grad",
           reference ? "/reference/grad/ops/ops.safetensors" : "/ops.safetensors");
  return checkpoint_open(path, &file);
}

static int close_all(void **state) {
  checkpoint_close(file);
  return 0;
}

// DELTAIC_TEST_FILTER: only the tests that match it.
int main(void) {
  const struct CMUnitTest tests[] = {
      device_test(rules_match),
      device_test(rules_on_matrices_match),
      device_test(made_rules_on_matrices_match_their_twin),
      device_test(small_betas_on_matrices_match_their_twin),
      device_test(mamba2_matches),
      device_test(convolution_matches),
      device_test(a_short_call_passes_the_gradient_of_its_history),
      device_test(products_match),
      device_test(what_overflows_is_not_finite),
      cmocka_unit_test(slopes_are_those_of_the_activations),
  };
  cmocka_set_test_filter(getenv("DELTAIC_TEST_FILTER"));
  return cmocka_run_group_tests(tests, open_all, close_all);
}
