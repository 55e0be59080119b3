// test_back_short: the kernels of norms, gated units, convolutions and the loss in a backward pass, against the C that
// specifies them, with numbers that are made here: sizes that are read by fours and others, long and short rows,
// gradients that are overwritten and that are added to.
#include "backward_cpu.h"
#include "device_handle.h"
#include "vulkan_backend.h"

#include <math.h>

// Last: its macro fail() must not meet the declaration of ours.
#include "devices.h"

enum { FLOATS = 1 << 19, STATES = 1 << 12 };

// One operation on one backend. Tensors are made in the same order on both, so that they are at the same places.
struct setup {
  struct backend *backend;
  struct oplist list;
  struct walk walk;
  struct buffer values, gradients, states, before, state_gradients, sequences;
  uint64_t used;
  uint32_t seed;
};

static float uniform(uint32_t *seed) { // -1 ... 1
  *seed = *seed * 1664525u + 1013904223u;
  return (float)(int32_t)*seed * 0x1p-31f;
}

static struct buffer made(struct setup *s, uint64_t n, float range) {
  struct buffer b;
  assert_ok(s->backend->functions->buffer_create(s->backend, MEMORY_SHARED, n * sizeof(float), "a test", &b));
  for (uint64_t i = 0; i < n; i++) ((float *)b.mapped)[i] = range * uniform(&s->seed);
  return b;
}

static struct setup *setup(struct backend *b) {
  struct setup *s = calloc(1, sizeof *s);
  s->backend = b;
  s->values = made(s, FLOATS, 2);
  s->gradients = made(s, FLOATS, 1);
  s->states = made(s, STATES, 1);
  s->before = made(s, STATES, 1);
  s->state_gradients = made(s, STATES, 1);
  s->sequences = made(s, 64, 0);
  assert_ok(b->functions->recorder_create(b, &s->walk.c));
  oplist_begin(&s->list);
  s->walk.functions = walk_functions(b);
  s->walk.list = &s->list;
  s->walk.values = &s->values;
  s->walk.gradients = &s->gradients;
  s->walk.states = &s->states;
  s->walk.before = &s->before;
  s->walk.state_gradients = &s->state_gradients;
  return s;
}

static void free_setup(struct setup *s) {
  struct buffer *const all[] = {&s->values, &s->gradients, &s->states, &s->before, &s->state_gradients, &s->sequences};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) s->backend->functions->buffer_free(s->backend, all[i]);
  walk_free(&s->walk);
  s->walk.c->functions->recorder_free(s->walk.c);
  oplist_free(&s->list);
  free(s);
}

static struct tensor value(struct setup *s, uint32_t rows, uint32_t cols) {
  const struct tensor t = {
      .rows = rows, .cols = cols, .stride = cols, .buffer = &s->values, .offset = s->used * sizeof(float)};
  s->used += round_up((uint64_t)rows * cols, TENSOR_ALIGN / sizeof(float));
  assert_true(s->used <= FLOATS);
  return t;
}

// On the device; on the CPU gradients that are to be overwritten become 0, since it adds to all.
static void begin(struct setup *s, uint32_t fresh, const struct tensor *tensors) {
  const bool cpu = s->walk.functions == &backward_on_cpu;
  for (uint32_t k = 0; fresh >> k; k++) {
    const struct tensor d = walk_gradient(&s->walk, tensors[k]);
    for (uint32_t r = 0; fresh >> k & 1 && d.buffer && r < d.rows; r++)
      for (uint32_t c = 0; c < d.cols; c++) f32_row(&d, r)[c] = cpu ? 0 : NAN;
  }
  s->walk.fresh = fresh;
  s->backend->functions->recorder_begin(s->walk.c, false, NULL);
  if (!cpu) ((struct vulkan_recorder *)s->walk.c)->list = &s->list;
}

static void run(struct setup *s) {
  assert_ok(s->walk.status);
  assert_ok(s->backend->functions->recorder_run(s->walk.c));
}

// All of two buffers that hold what one operation wrote. What it did not write is the same.
static void compare_buffers(const char *what, const struct buffer *got, const struct buffer *want, uint64_t n) {
  const float *g = got->mapped, *w = want->mapped;
  double error = 0, norm = 0;
  for (uint64_t i = 0; i < n; i++) {
    error += ((double)g[i] - w[i]) * ((double)g[i] - w[i]);
    norm += (double)w[i] * w[i];
    if (!(fabs((double)g[i] - w[i]) <= 1e-4 * (1 + fabs((double)w[i]))))
      fail_msg("%s: number %llu is %g, not %g", what, (unsigned long long)i, g[i], w[i]);
  }
  if (!(sqrt(error) <= 1e-6 * sqrt(norm))) fail_msg("%s: %.1e", what, sqrt(error / norm));
}

static void compare(const char *what, struct setup *got, struct setup *want) {
  assert_int_equal(got->used, want->used);
  compare_buffers(what, &got->gradients, &want->gradients, want->used);
  compare_buffers(what, &got->state_gradients, &want->state_gradients, STATES);
  free_setup(got);
  free_setup(want);
}

typedef void (*record)(struct setup *s, const void *shape);
static void on_both(deltaic_device *device, const char *what, record make, const void *shape) {
  struct backend *cpu;
  if (walk_functions(device->backend) == &backward_on_cpu) return;
  assert_ok(backend_open_cpu(1, &cpu));
  struct setup *got = setup(device->backend), *want = setup(cpu);
  make(got, shape);
  make(want, shape);
  compare(what, got, want);
  cpu->functions->close(cpu);
}

// The same with the wide workgroups of a GPU whose subgroups may be partly filled.
static void on_both_as_on_gpus(deltaic_device *device, const char *what, record make, const void *shape) {
  if (walk_functions(device->backend) == &backward_on_cpu) return;
  struct plan *plan = &vulkan_device(device->backend)->plan;
  const struct plan own = *plan;
  plan->subgroup_width = 0;
  plan->software = false;
  plan->lanes = min32(256, plan->most_lanes);
  on_both(device, what, make, shape);
  *plan = own;
}

// ---------------------------------------------------------------- norms

struct norm_shape {
  uint32_t T, groups, n, from, after; // columns before the groups and behind them
  enum norm_place place;
  bool gated, one_weight, adds;
};

static void make_norm(struct setup *s, const void *shape) {
  const struct norm_shape *p = shape;
  const uint32_t width = p->groups * p->n, cols = p->from + width + p->after;
  const struct tensor none = {0};
  const struct gated_norm op = {.y = value(s, p->T, cols),
                                .x = value(s, p->T, cols),
                                .gate = p->gated ? value(s, p->T, width) : none,
                                .weight = value(s, 1, p->one_weight ? p->n : width),
                                .groups = p->groups,
                                .group_cols = p->n,
                                .place = p->place,
                                .eps = 1e-3f,
                                .from = p->from};
  begin(s, p->adds ? 0 : p->gated ? 1u << 1 | 1u << 2 : 1u << 1, (struct tensor[]){op.y, op.x, op.gate});
  s->walk.functions->gated_norm(&s->walk, &op);
  run(s);
}

// A norm is that of one group.
static void make_plain_norm(struct setup *s, const void *shape) {
  const struct norm_shape *p = shape;
  const struct norm op = {
      .y = value(s, p->T, p->n), .x = value(s, p->T, p->n), .weight = value(s, 1, p->n), .eps = 1e-3f};
  begin(s, p->adds ? 0 : 1u << 1, (struct tensor[]){op.y, op.x});
  s->walk.functions->norm(&s->walk, &op);
  run(s);
}

static void norms_match_their_twin(deltaic_device *device) {
  static const struct norm_shape shapes[] = {
      {.T = 35, .groups = 3, .n = 32, .place = NORM_FIRST, .gated = true, .one_weight = true},
      {.T = 17, .groups = 2, .n = 32, .place = NORM_OF_GATED, .gated = true, .adds = true},
      {.T = 18, .groups = 5, .n = 7, .place = NORM_OF_GATED, .gated = true, .one_weight = true},
      {.T = 3, .groups = 9, .n = 20, .place = NORM_ABSENT, .gated = true, .one_weight = true},
      {.T = 16, .groups = 2, .n = 12, .from = 8, .after = 5, .place = NORM_FIRST, .adds = true},
      {.T = 33, .groups = 2, .n = 12, .from = 8, .after = 4, .place = NORM_FIRST},
      {.T = 33, .groups = 3, .n = 300, .place = NORM_FIRST, .gated = true, .adds = true},
      {.T = 19, .groups = 2, .n = 2180, .place = NORM_OF_GATED, .gated = true},
      {.T = 34, .groups = 1, .n = 1027, .place = NORM_FIRST, .gated = true, .adds = true},
  };
  static const struct norm_shape plain[] = {{.T = 21, .n = 64}, {.T = 40, .n = 515, .adds = true}, {.T = 5, .n = 6}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    on_both(device, "gated norm", make_norm, &shapes[i]);
    on_both_as_on_gpus(device, "gated norm, wide", make_norm, &shapes[i]);
  }
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) on_both(device, "norm", make_plain_norm, &plain[i]);
}

// ---------------------------------------------------------------- gated units

struct glu_shape {
  uint32_t T, F;
  enum activation activation;
  bool joined, adds; // gate and x are halves of one value
};

static void make_glu(struct setup *s, const void *shape) {
  const struct glu_shape *p = shape;
  struct tensor both = value(s, p->T, p->joined ? 2 * p->F : p->F), x = both;
  both.cols = x.cols = p->F;
  if (p->joined)
    x.offset += p->F * sizeof(float);
  else
    x = value(s, p->T, p->F);
  const struct glu op = {.y = value(s, p->T, p->F), .gate = both, .x = x, .activation = p->activation};
  begin(s, p->adds ? 0 : 1u << 1 | 1u << 2, (struct tensor[]){op.y, op.gate, op.x});
  s->walk.functions->glu(&s->walk, &op);
  run(s);
}

static void gated_units_match_their_twin(deltaic_device *device) {
  for (int a = ACTIVATION_IDENTITY; a <= ACTIVATION_SIGMOID; a++)
    for (int i = 0; i < 4; i++)
      on_both(device, "gated unit", make_glu,
              &(struct glu_shape){.T = 3,
                                  .F = i % 2 ? 300 : 35,
                                  .activation = (enum activation)a,
                                  .joined = i > 1,
                                  .adds = i == 1 || i == 2});
}

// ---------------------------------------------------------------- convolutions

struct conv_shape {
  uint32_t C, W, silu_from;
  bool bias, history, adds;
};

// Texts of less than a block of tokens, of several, and shorter than the filter.
static void make_conv(struct setup *s, const void *shape) {
  enum { TEXTS = 3, MOST_T = 67 };
  static const uint32_t lengths[TEXTS] = {MOST_T, 2, 33};
  const struct conv_shape *p = shape;
  const struct tensor none = {0};
  uint32_t T = 0;
  for (uint32_t b = 0; b < TEXTS; T += lengths[b++])
    ((struct sequence *)s->sequences.mapped)[b] = (struct sequence){T, lengths[b], 0, TEXTS - 1 - b};
  s->list.longest = MOST_T;
  const struct tensor history = {
      .rows = TEXTS, .cols = (p->W - 1) * p->C, .stride = (p->W - 1) * p->C, .buffer = &s->states};
  const struct conv op = {.y = value(s, T, p->C),
                          .history = p->history ? history : none,
                          .x = value(s, T, p->C),
                          .weight = value(s, p->W, p->C),
                          .bias = p->bias ? value(s, 1, p->C) : none,
                          .sequences = {.rows = TEXTS, .cols = 4, .stride = 4, .buffer = &s->sequences},
                          .a = {.W = p->W, .C = p->C, .silu_from = p->silu_from}};
  begin(s, p->adds ? 0 : 1u << 2, (struct tensor[]){op.y, op.history, op.x});
  s->walk.functions->conv(&s->walk, &op);
  run(s);
}

static void convolutions_match_their_twin(deltaic_device *device) {
  static const struct conv_shape shapes[] = {
      {.C = 48, .W = 4, .bias = true, .history = true},
      {.C = 300, .W = 4, .silu_from = 102, .history = true, .adds = true},
      {.C = 35, .W = 4, .silu_from = 3, .bias = true, .history = true, .adds = true},
      {.C = 20, .W = 3, .silu_from = 20},
      {.C = 6, .W = 2, .history = true},
  };
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) on_both(device, "convolution", make_conv, &shapes[i]);
}

// ---------------------------------------------------------------- the loss

struct loss_shape {
  uint32_t n, V;
  bool taught;
  float range; // of logits
};

static void make_loss(struct setup *s, const void *shape) {
  enum { FIRST = 3 }; // prediction of the first row
  const struct loss_shape *p = shape;
  const struct tensor none = {0};
  // The gradient is where the logits were, so all of these are in the buffer of gradients.
  struct loss_rows r = {.z = value(s, p->n, p->V),
                        .taught = p->taught ? value(s, p->n, p->V) : none,
                        .losses = value(s, FIRST + p->n, 2),
                        .first = FIRST,
                        .tau = p->taught ? 1.7 : 1,
                        .factor = 3,
                        .kd_factor = 0.8};
  r.z.buffer = r.losses.buffer = &s->gradients;
  r.targets = (struct tensor){
      .dtype = DTYPE_I32, .rows = 1, .cols = FIRST + p->n, .stride = FIRST + p->n, .buffer = &s->sequences};
  for (uint32_t t = 0; t < p->n; t++) {
    for (uint32_t c = 0; c < p->V; c++) f32_row(&r.z, t)[c] *= p->range;
    ((int32_t *)s->sequences.mapped)[FIRST + t] = t == 1 ? -1 : (int32_t)(t * 7919 % p->V);
  }
  begin(s, 0, NULL);
  s->walk.functions->loss(&s->walk, &r);
  run(s);
}

static void losses_match_their_twin(deltaic_device *device) {
  static const struct loss_shape shapes[] = {{.n = 4, .V = 5, .range = 9},
                                             {.n = 3, .V = 64, .range = 2},
                                             {.n = 5, .V = 1004, .range = 9},
                                             {.n = 3, .V = 3001, .range = 30},
                                             {.n = 4, .V = 4100, .range = 9},
                                             {.n = 2, .V = 9001, .range = 9},
                                             {.n = 2, .V = 20, .taught = true, .range = 4},
                                             {.n = 4, .V = 1307, .taught = true, .range = 4}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    on_both(device, "loss", make_loss, &shapes[i]);
    on_both_as_on_gpus(device, "loss, wide", make_loss, &shapes[i]);
  }
}

// DELTAIC_TEST_FILTER: only the tests that match it.
int main(void) {
  const struct CMUnitTest tests[] = {
      device_test(norms_match_their_twin),
      device_test(gated_units_match_their_twin),
      device_test(convolutions_match_their_twin),
      device_test(losses_match_their_twin),
  };
  cmocka_set_test_filter(getenv("DELTAIC_TEST_FILTER"));
  return cmocka_run_group_tests(tests, NULL, NULL);
}
