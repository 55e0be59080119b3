// check: runs lists of operations on a device and on the CPU, and compares the tensors that they write. If a list
// differs, each of its operations runs alone on the device, with inputs from the CPU. This finds the wrong kernel.
#include "check.h"
#include "device_handle.h"
#include "measure.h"
#include "vulkan_backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY = 64 << 20, NAMES = 16 };
static const double LIMIT = 2e-5, LIMIT_F16 = 5e-3; // relative RMS; LIMIT_F16: for kernels that round operands
static const double WORST = 1e-4, WORST_F16 = 0.1;  // of an element

// ---------------------------------------------------------------- runs

static void set_scratch(struct check *k) {
  struct oplist *l = &k->list[k->side];
  struct backend *b = k->b[k->side];
  uint64_t largest, bytes = b->functions->list_bytes(b, l, &largest);
  l->scratch = (struct tensor){0};
  if (bytes) l->scratch = check_place(k, DTYPE_F32, 1, (uint32_t)(bytes / sizeof(float)));
}

// Runs the list of side k->side. names: gets the names of the kernels that ran, as "a + b"; NULL: not wanted.
static void run(struct check *k, char *names, size_t capacity) {
  struct backend *b = k->b[k->side];
  struct oplist *l = &k->list[k->side];
  struct recorder *c = NULL;
  deltaic_kernel_time times[NAMES];
  set_scratch(k);
  if (!k->status) k->status = b->functions->recorder_create(b, &c);
  const bool profiled = !k->status && names && !b->functions->recorder_profile(c, true); // else without time stamps
  if (!k->status) {
    b->functions->recorder_begin(c, false, NULL);
    b->functions->recorder_list(c, l);
    k->status = b->functions->recorder_run(c);
  }
  size_t count = profiled && !k->status ? b->functions->recorder_times(c, times, NAMES) : 0;
  if (names) names[0] = 0;
  for (size_t i = 0, used = 0; i < count && i < NAMES && used < capacity; i++)
    used += (size_t)snprintf(names + used, capacity - used, "%s%s", i ? " + " : "", times[i].name);
  if (c) b->functions->recorder_free(c);
}

static void begin(struct check *k, int side) {
  struct oplist *l = &k->list[side];
  oplist_begin(l);
  k->side = side;
  l->matrices = side == CHECK_CPU ? MATRICES_NONE : k->matrices;
  l->form = (enum delta_form)k->c->form;
  l->longest = k->c->T;
  l->parts = side == CHECK_CPU || !k->matrices ? (struct tensor){0} : k->parts;
}

static void make(struct check *k, int side) {
  begin(k, side);
  k->at = k->begin;
  k->random = 1;
  k->outs = 0;
  check_record(k, k->c);
  k->made = !k->compiles;
}

// The error of a tensor of the device against the CPU's. INFINITY: the tensor has a NaN or an infinity. Integers: 1 if
// any differs, else 0.
struct difference {
  double error; // relative RMS
  double worst; // of an element, by its size plus the RMS of its row, or of all rows where that is larger
};

static double sum_of_squares(const float *x, uint64_t n) {
  double sum = 0;
  for (uint64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
  return sum;
}

static struct difference compare(const struct tensor *t, const float *want, const float *got) {
  const uint64_t cols = t->stride, n = t->rows * cols;
  const double all = sum_of_squares(want, n), usual = sqrt(all / (double)n);
  struct difference d = {0};
  for (uint64_t row = 0; row < t->rows; row++) {
    const double rms = fmax(usual, sqrt(sum_of_squares(want + row * cols, cols) / (double)cols));
    for (uint64_t i = row * cols; i < (row + 1) * cols; i++) {
      const double off = fabs((double)got[i] - want[i]), part = off == 0 ? 0 : off / (fabs(want[i]) + rms);
      d.error += off * off;
      if (!(part <= d.worst)) d.worst = isfinite(part) ? part : INFINITY;
    }
  }
  d.error = d.error == 0 ? 0 : sqrt(d.error / all);
  if (!isfinite(d.error)) d.error = INFINITY;
  return d;
}

static struct difference difference(struct check *k, struct tensor t) {
  const uint64_t n = (uint64_t)t.rows * t.stride;
  float *x[2] = {malloc(n * sizeof **x), malloc(n * sizeof **x)};
  struct difference d = {0};
  if (!x[0] || !x[1]) k->status = fail_memory("the check's results", 2 * n * sizeof **x);
  for (int i = 0; i < 2 && !k->status; i++)
    k->status = k->b[i]->functions->buffer_read(k->b[i], &k->memory[i], t.offset, x[i], n * sizeof **x);
  if (!k->status && t.dtype == DTYPE_I32)
    d.error = d.worst = memcmp(x[0], x[1], n * sizeof **x) != 0;
  else if (!k->status)
    d = compare(&t, x[0], x[1]);
  free(x[0]);
  free(x[1]);
  return d;
}

static void keep_larger(struct difference *d, struct difference other) {
  if (other.error > d->error) d->error = other.error;
  if (other.worst > d->worst) d->worst = other.worst;
}

static bool within(const struct check *k, struct difference d) {
  return d.error <= k->limit && d.worst <= k->worst_limit;
}

// ---------------------------------------------------------------- what is wrong

// Copies the CPU's memory to the device, and runs one operation on both. Returns the largest errors of its outputs.
static struct difference run_alone(struct check *k, struct op op, char *names, size_t capacity) {
  const uint64_t at = k->at, bytes = at - k->begin;
  const struct op_shape *shape = &op_shapes[op.kind];
  struct difference all = {0};
  op.scope = 0;
  for (int side = 0; side < 2; side++) {
    if (side == CHECK_DEVICE && op.kind == OP_GROUP) return all; // rows of one expert may have any order
    for (uint32_t j = 0; j < shape->writes + shape->updates + shape->reads; j++)
      if (op.t[j].buffer) op.t[j].buffer = &k->memory[side];
    if (side == CHECK_CPU && !k->status)
      k->status = k->b[1]->functions->buffer_write(k->b[1], &k->memory[1], k->begin,
                                                   (char *)k->memory[0].mapped + k->begin, bytes);
    k->side = side;
    for (uint32_t j = 0; j < op_tensors(op.kind) && side == CHECK_DEVICE && k->b[1]->tiles; j++)
      if (op.t[j].buffer && dtype_is_blocks(op.t[j].dtype))
        op.t[j] = check_tiles(k, op.t[j], (char *)k->memory[0].mapped + op.t[j].offset);
    begin(k, side);
    k->list[side].ops[0] = op;
    k->list[side].count = 1;
    run(k, side == CHECK_CPU ? NULL : names, capacity);
    k->at = at;
  }
  for (uint32_t j = 0; j < shape->writes + shape->updates && !k->status; j++)
    if (op.t[j].buffer) keep_larger(&all, difference(k, op.t[j]));
  return all;
}

// Runs the list's operations one by one on both sides, with the CPU's inputs. names: gets the kernels of the first
// operation that is wrong. If every operation alone is right, only the joined kernels are wrong, and names stays.
static void explain(struct check *k, char *names, size_t capacity) {
  struct oplist *l = &k->list[CHECK_CPU];
  make(k, CHECK_CPU);
  make(k, CHECK_DEVICE); // gives this list room for as many operations
  k->side = CHECK_CPU;
  for (uint32_t i = 0; i < l->value_count; i++)
    if (!l->values[i].bound.buffer)
      l->values[i].bound = check_place(k, DTYPE_F32, l->values[i].rows, l->values[i].cols);
  const size_t count = l->count;
  struct op *ops = malloc(count * sizeof *ops);
  if (!ops) k->status = fail_memory("the check's operations", count * sizeof *ops);
  for (size_t i = 0; i < count && !k->status; i++) {
    ops[i] = l->ops[i];
    for (size_t j = 0; j < sizeof ops->t / sizeof *ops->t; j++) {
      struct tensor *t = &ops[i].t[j];
      if (j >= op_tensors(ops[i].kind) || !t->value) continue;
      const struct tensor at = l->values[t->value - 1].bound;
      t->buffer = at.buffer;
      t->offset += at.offset;
      t->value = 0;
    }
  }
  char own[sizeof k->kernels];
  for (size_t i = 0; i < count && !k->status; i++) {
    if (within(k, run_alone(k, ops[i], own, sizeof own)) || k->status) continue;
    snprintf(names, capacity, "%s", own);
    break;
  }
  free(ops);
}

// ---------------------------------------------------------------- all lists

static void describe(const struct check *k, char *text, size_t capacity) {
  static const char *const kinds[] = {"products", "delta rule", "Mamba-2", "attention", "experts", "tokens"};
  static const char *const forms[] = {"", ", recurrent", ", chunks"};
  const struct check_case *c = k->c;
  int n = snprintf(text, capacity, "%s, %s, %u x %u tokens%s", kinds[c->kind], dtype_name((enum dtype)c->dtype), c->B,
                   c->T, forms[c->form]);
  if (c->kind == CHECK_DELTA)
    n += snprintf(text + n, capacity - (size_t)n, ", keys of %u, %u steps, %u blocks", c->Dk, c->n, c->r);
  if (c->kind == CHECK_TOKENS) n += snprintf(text + n, capacity - (size_t)n, ", a vocabulary of %u", c->V);
  snprintf(text + n, capacity - (size_t)n, ", %s", k->matrices ? "fast" : "float32");
}

static void check_one(struct check *k, deltaic_check *r) {
  struct difference all = {0};
  make(k, CHECK_CPU);
  run(k, NULL, 0);
  make(k, CHECK_DEVICE);
  run(k, k->kernels, sizeof k->kernels);
  for (uint32_t i = 0; i < k->outs && !k->status; i++) keep_larger(&all, difference(k, k->out[i]));
  r->limit = k->limit = k->matrices ? LIMIT_F16 : LIMIT;
  r->worst_limit = k->worst_limit = k->matrices ? WORST_F16 : WORST;
  r->error = all.error;
  r->worst = all.worst;
  r->right = within(k, all);
  if (!k->status && !r->right) explain(k, k->kernels, sizeof k->kernels);
}

// Whether DELTAIC_PRECISION_FAST uses other kernels on this device.
static bool has_fast(const struct backend *b) {
  const struct vulkan_backend *v = (const struct vulkan_backend *)b;
  return b->replays && (v->device->plan.matrix_products || v->device->plan.matrix_mixers || v->products.dots);
}

static uint32_t lists_of(const struct backend *b) { return check_case_count * (has_fast(b) ? 2 : 1); }

// Each case in float32, then each with what DELTAIC_PRECISION_FAST takes.
static void set_list(struct check *k, uint32_t list) {
  k->matrices = list < check_case_count ? MATRICES_NONE : MATRICES_BEST;
  k->c = &check_cases[list % check_case_count];
  k->made = false;
}

// How many lists are compiled together. On a GPU: all, since many cores compile faster than one. On software: few,
// because compilation there is partly deferred and a check may end early.
static uint32_t together(const struct backend *b) { return measure_software(b) ? 8 : lists_of(b); }

static void record_lists(struct recorder *c, void *context) {
  struct check *k = context;
  for (uint32_t i = k->next; i < k->end && !k->status; i++) {
    set_list(k, i);
    make(k, CHECK_DEVICE);
    set_scratch(k);
    if (!k->status) c->functions->recorder_list(c, &k->list[CHECK_DEVICE]);
  }
}

// Compiles the kernels of list `first` and of those after it.
static void compile_lists(struct check *k, uint32_t first) {
  const uint32_t all = lists_of(k->b[1]), end = first + together(k->b[1]);
  k->next = first;
  k->end = end < all ? end : all;
  k->compiles = true;
  const deltaic_status status = k->b[1]->functions->compile(k->b[1], record_lists, k);
  k->compiles = false;
  if (!k->status) k->status = status;
}

static deltaic_status allocate(struct check *k) {
  const uint64_t parts = k->b[1]->parts_bytes;
  deltaic_status status = pool_create(0, &k->pool);
  if (status) return status;
  k->begin = round_up(parts, TENSOR_ALIGN);
  k->inputs = malloc(MEMORY);
  if (!k->inputs) return fail_memory("the check's inputs", MEMORY);
  for (int i = 0; i < 2 && !status; i++)
    status = k->b[i]->functions->buffer_create(k->b[i], MEMORY_DEVICE, k->begin + MEMORY, "the check", &k->memory[i]);
  if (parts)
    k->parts = (struct tensor){.dtype = DTYPE_F32,
                               .rows = 1,
                               .cols = (uint32_t)(parts / 4),
                               .stride = (uint32_t)(parts / 4),
                               .buffer = &k->memory[1]};
  return status || !parts ? status : k->b[1]->functions->buffer_zero(k->b[1], &k->memory[1], 0, parts);
}

deltaic_status deltaic_device_check(deltaic_device *d, bool (*report)(void *user, const deltaic_check *check),
                                    void *user) {
  struct check k = {0};
  char name[128];
  deltaic_check r = {.name = name, .kernels = k.kernels};
  if (!d || !report)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_device_check: %s is NULL", !d ? "device" : "report");
  k.b[1] = d->backend;
  k.status = backend_open_cpu(0, &k.b[0]);
  if (!k.status) k.status = allocate(&k);
  for (uint32_t i = 0, all = lists_of(d->backend); i < all && !k.status; i++) {
    if (i % together(d->backend) == 0) compile_lists(&k, i);
    set_list(&k, i);
    check_one(&k, &r);
    describe(&k, name, sizeof name);
    if (!k.status && !report(user, &r)) k.status = fail(DELTAIC_CANCELLED, "the check was cancelled");
  }
  for (int i = 0; i < 2 && k.b[0]; i++) {
    if (k.memory[i].bytes) k.b[i]->functions->buffer_free(k.b[i], &k.memory[i]);
    oplist_free(&k.list[i]);
  }
  if (k.b[0]) k.b[0]->functions->close(k.b[0]);
  pool_free(k.pool);
  free(k.inputs);
  return k.status;
}
