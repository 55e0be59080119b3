// measure_operator: measures one operator on the device and compares its results with the recurrence in float32.
#include "device_handle.h"
#include "measure_inputs.h"
#include "option_structs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KERNELS = 8, CHAIN = 8 };
static const double SHORT = 50e-6; // stamps around a dispatch add 1.3 to 1.6 us to it (H200), which no model pays

// ---------------------------------------------------------------- the operator

static struct delta_args delta_of(const struct operator_run *m) {
  const deltaic_operator *o = &m->o;
  return (struct delta_args){.H = o->heads,
                             .Hv = o->value_heads,
                             .Dk = o->key,
                             .Dv = o->value,
                             .n = o->steps,
                             .r = o->blocks,
                             .scale = 1 / sqrtf((float)o->key),
                             .gated = o->gated,
                             .nonneg = HH_NONNEG_SOFTPLUS};
}

static void begin_list(struct operator_run *m, bool reference) {
  const bool fast = !reference && m->o.precision == DELTAIC_PRECISION_FAST;
  oplist_begin(&m->list);
  m->list.matrices = !fast ? MATRICES_NONE : m->o.plain ? MATRICES_PLAIN : MATRICES_BEST;
  m->list.form = reference ? DELTA_RECURRENT : (enum delta_form)m->o.rule;
  m->list.longest = !reference && operator_is_step(m) ? 1 : 0;
}

// Records what a layer records for one token of each sequence, without the output's norm and gate.
static void record_step(struct operator_run *m, struct tensor state) {
  const struct delta_args a = delta_of(m);
  op_delta_inputs(&m->list, &(struct delta_inputs){.y = m->qkv,
                                                   .beta = m->beta,
                                                   .g = m->g,
                                                   .x = m->qkv,
                                                   .ba = m->ba,
                                                   .A_log = m->none,
                                                   .dt_bias = m->none,
                                                   .a = {.heads = (1 + a.n) * a.H,
                                                         .Dk = a.Dk,
                                                         .norm = KEY_NORM_L2,
                                                         .betas = a.n * a.Hv,
                                                         .decays = a.gated ? a.Hv : 0,
                                                         .beta_scale = 1,
                                                         .has_beta = true,
                                                         .gated = a.gated}});
  op_delta_rule(&m->list, &(struct delta_rule){.o = m->out,
                                               .state = state,
                                               .qkv = m->qkv,
                                               .beta = m->beta,
                                               .g = m->g,
                                               .mask = m->mask,
                                               .sequences = m->sequences,
                                               .a = a});
}

// Records the operator over all sequences, or, as the reference, in float32 over one.
static void record_rule(struct operator_run *m, bool reference) {
  const struct tensor none = {0};
  struct delta_rule rule = {.o = m->out,
                            .state = m->state,
                            .qkv = m->qkv,
                            .beta = m->beta,
                            .g = m->g,
                            .mask = m->mask,
                            .sequences = m->sequences,
                            .a = delta_of(m)};
  if (reference) {
    rule.o = m->out_wide;
    rule.state = m->state_wide;
    rule.qkv = m->wide;
    rule.beta = m->beta_wide;
    rule.g = m->g_wide;
    rule.mask = m->mask_wide;
    rule.sequences = m->sequence_wide;
  }
  if (!m->o.gated) rule.g = none;
  op_delta_rule(&m->list, &rule);
}

static void list_operators(struct operator_run *m, struct recorder *c, bool reference) {
  begin_list(m, reference);
  m->count = reference ? 1 : m->turns;
  if (!reference && operator_is_step(m)) {
    record_step(m, m->states[0]);
    m->count *= OPERATOR_STATES + 1;
    for (uint32_t i = 1; i < m->count; i++) // the state last: its output stays
      record_step(m, i % (OPERATOR_STATES + 1) < OPERATOR_STATES ? m->states[i % (OPERATOR_STATES + 1)] : m->state);
  } else {
    for (uint32_t i = 0; i < m->count; i++) record_rule(m, reference);
  }
  m->b->functions->recorder_list(c, &m->list);
}

static void record(struct operator_run *m, bool reference) {
  m->b->functions->recorder_begin(m->c, true, NULL);
  list_operators(m, m->c, reference);
}

// Plans the operator before a product, as in a layer. This decides its scratch, and whether q, k, v and o are f16:
// coopmat kernels do not support every size.
static uint64_t plan_scratch(struct operator_run *m) {
  static struct buffer elsewhere;
  const deltaic_operator *o = &m->o;
  const uint32_t rows = o->sequences * o->tokens, outputs = o->value_heads * o->value;
  const struct tensor w = {
      .dtype = DTYPE_F16, .rows = outputs, .cols = outputs, .stride = outputs, .buffer = &elsewhere};
  struct oplist *l = &m->list;
  begin_list(m, false);
  struct delta_rule rule = {
      .o = oplist_value(l, rows, outputs), .qkv = oplist_value(l, rows, m->cols), .a = delta_of(m)};
  rule.sequences.rows = o->sequences;
  op_delta_rule(l, &rule);
  op_linear(l, oplist_value(l, rows, outputs), rule.o, w, (struct tensor){0});
  for (size_t i = 0; i < l->value_count; i++) l->values[i].bound.buffer = &elsewhere;
  uint64_t largest, bytes = m->b->functions->list_bytes(m->b, l, &largest);
  m->narrow = o->rule != DELTAIC_RULE_RECURRENT && oplist_tensor(l, rule.qkv).dtype == DTYPE_F16;
  return bytes;
}

static deltaic_status allocate(struct operator_run *m) {
  const deltaic_operator *o = &m->o;
  uint64_t rows = (uint64_t)o->sequences * o->tokens, outputs = (uint64_t)o->value_heads * o->value;
  uint64_t state = outputs * o->key, T = o->tokens, betas = (uint64_t)o->steps * o->value_heads;
  uint64_t scratch = plan_scratch(m);
  enum dtype dtype = m->narrow ? DTYPE_F16 : DTYPE_F32;
  struct arena *a = &m->arena;
  if (m->narrow) m->padded += (1 + o->steps) * o->heads * (key_pitch(DTYPE_F16, o->key) - o->key);
  arena_add(a, &m->qkv, dtype, rows, m->padded, m->padded);
  arena_add(a, &m->out, dtype, rows, outputs, outputs);
  arena_add(a, &m->beta, DTYPE_F32, rows, betas, betas);
  arena_add(a, &m->g, DTYPE_F32, rows, o->value_heads, o->value_heads);
  arena_add(a, &m->state, DTYPE_F32, o->sequences, state, state);
  arena_add(a, &m->sequences, DTYPE_I32, o->sequences, 4, 4);
  if (scratch) arena_add(a, &m->list.scratch, DTYPE_F32, 1, scratch / 4, scratch / 4);
  arena_add(a, &m->wide, DTYPE_F32, T, m->cols, m->cols);
  arena_add(a, &m->out_wide, DTYPE_F32, T, outputs, outputs);
  arena_add(a, &m->beta_wide, DTYPE_F32, T, betas, betas);
  arena_add(a, &m->g_wide, DTYPE_F32, T, o->value_heads, o->value_heads);
  arena_add(a, &m->state_wide, DTYPE_F32, 1, state, state);
  arena_add(a, &m->sequence_wide, DTYPE_I32, 1, 4, 4);
  uint64_t masks = (uint64_t)o->value_heads * o->blocks * o->blocks;
  if (operator_is_step(m)) {
    const uint32_t heads = o->value_heads, ba = betas + (o->gated ? heads : 0);
    arena_add(a, &m->ba, DTYPE_F32, rows, ba, ba);
    arena_add(a, &m->none, DTYPE_F32, 1, heads, heads);
    for (int i = 0; i < OPERATOR_STATES; i++) arena_add(a, &m->states[i], DTYPE_F32, o->sequences, state, state);
  }
  if (o->blocks > 1) arena_add(a, &m->mask, DTYPE_F32, rows, masks, masks);
  if (o->blocks > 1) arena_add(a, &m->mask_wide, DTYPE_F32, T, masks, masks);
  return arena_allocate(a, m->b, MEMORY_DEVICE, "an operator's tensors");
}

// ---------------------------------------------------------------- results

// Computes the relative RMS error of rows `row` ... of t against all of `wide`.
static deltaic_status compare(struct operator_run *m, struct tensor t, uint64_t row, struct tensor wide,
                              double *error) {
  uint64_t numbers = (uint64_t)wide.rows * wide.stride, bytes = dtype_bytes(t.dtype, numbers);
  float *want = malloc(numbers * sizeof *want);
  float *x = malloc(numbers * sizeof *x);
  void *got = malloc(bytes);
  deltaic_status status = want && x && got ? DELTAIC_OK : fail_memory("an operator's results", numbers * 8);
  if (status == DELTAIC_OK)
    status = m->b->functions->buffer_read(m->b, wide.buffer, wide.offset, want, numbers * sizeof *want);
  if (status == DELTAIC_OK)
    status = m->b->functions->buffer_read(m->b, t.buffer, t.offset + dtype_bytes(t.dtype, row * t.stride), got, bytes);
  if (status == DELTAIC_OK) dtype_decode(t.dtype, got, 0, numbers, x);
  double difference = 0, all = 0;
  for (uint64_t i = 0; i < numbers && status == DELTAIC_OK; i++) {
    double y = want[i], off = x[i] - y;
    difference += off * off;
    all += y * y;
  }
  *error = sqrt(difference / all);
  free(want);
  free(x);
  free(got);
  return status;
}

static deltaic_status check(struct operator_run *m, deltaic_operator_result *r) {
  uint32_t last = m->o.sequences - 1;
  record(m, false);
  deltaic_status status = m->b->functions->recorder_run(m->c);
  if (status != DELTAIC_OK) return status;
  record(m, true);
  status = m->b->functions->recorder_run(m->c);
  if (status == DELTAIC_OK) status = compare(m, m->out, (uint64_t)last * m->o.tokens, m->out_wide, &r->error_output);
  if (status == DELTAIC_OK) status = compare(m, m->state, last, m->state_wide, &r->error_state);
  return status;
}

// ---------------------------------------------------------------- times

// An idle GPU runs at a sixth of its clock under load (H200: 345 MHz of 1980).
static deltaic_status warm_up(struct operator_run *m) {
  const double start = measure_now(), usual = m->awake ? measure_warm(start - m->began) : 0.4;
  const double long_enough = m->b->replays ? usual : 0;
  deltaic_status status = DELTAIC_OK;
  do {
    if (!m->b->replays) record(m, false);
    status = m->b->functions->recorder_run(m->c);
  } while (status == DELTAIC_OK && measure_now() - start < long_enough);
  return status;
}

// The time of every run, as a difference of sums: per kernel, from time stamps around each, or, if `chain`, from two
// time stamps around many operators.
static deltaic_status time_runs(struct operator_run *m, bool chain, deltaic_operator_result *r) {
  deltaic_status (*const stamps)(struct recorder *, bool) =
      chain ? m->b->functions->recorder_busy : m->b->functions->recorder_profile;
  m->turns = chain ? CHAIN : 1;
  double *runs = calloc(m->o.repeat, sizeof *runs);
  if (!runs) return fail_memory("times", m->o.repeat * sizeof *runs);
  deltaic_kernel_time before[MOST_KERNELS] = {0}, times[MOST_KERNELS];
  deltaic_status status = stamps(m->c, true);
  record(m, false);
  if (status == DELTAIC_OK) status = warm_up(m);
  m->b->functions->recorder_times(m->c, before, MOST_KERNELS);
  memcpy(times, before, sizeof times);
  for (uint32_t i = 0; i < m->o.repeat && status == DELTAIC_OK; i++) {
    for (size_t k = 0; k < MOST_KERNELS; k++) runs[i] -= times[k].seconds;
    if (!m->b->replays) record(m, false);
    status = m->b->functions->recorder_run(m->c);
    r->kernel_count = m->b->functions->recorder_times(m->c, times, MOST_KERNELS);
    if (r->kernel_count > MOST_KERNELS) r->kernel_count = MOST_KERNELS;
    for (size_t k = 0; k < r->kernel_count; k++) runs[i] += times[k].seconds;
  }
  if (status == DELTAIC_OK) {
    for (size_t k = 0; k < r->kernel_count; k++) {
      r->kernels[k] = times[k];
      r->kernels[k].seconds = (times[k].seconds - before[k].seconds) / m->count;
      r->kernels[k].dispatches = (times[k].dispatches - before[k].dispatches) / m->count;
      r->kernels[k].bytes = (times[k].bytes - before[k].bytes) / m->count;
      r->kernels[k].operations = (times[k].operations - before[k].operations) / m->count;
    }
    for (uint32_t i = 0; i < m->o.repeat; i++) runs[i] /= m->count;
    measure_summary(runs, m->o.repeat, &r->seconds, &r->least, &r->most);
  }
  free(runs);
  return status == DELTAIC_OK ? stamps(m->c, false) : status;
}

// Times a chain of operators; the kernels' own times stay those from time stamps around each.
static deltaic_status time_chain(struct operator_run *m, deltaic_operator_result *r) {
  deltaic_operator_result chain = {0};
  deltaic_status status = time_runs(m, true, &chain);
  if (status != DELTAIC_OK) return status;
  r->seconds = chain.seconds;
  r->least = chain.least;
  r->most = chain.most;
  return DELTAIC_OK;
}

// Counts the bytes that every form must move: each input and output once, and states in and out.
static void count_work(const struct operator_run *m, deltaic_operator_result *r) {
  const deltaic_operator *o = &m->o;
  uint64_t rows = (uint64_t)o->sequences * o->tokens, size = m->narrow ? 2 : 4;
  uint64_t gates = 4ull * o->value_heads * (o->steps + o->gated + (o->blocks > 1 ? o->blocks * o->blocks : 0));
  r->bytes = rows * (size * (m->cols + (uint64_t)o->value_heads * o->value) + gates) +
             8ull * o->sequences * o->value_heads * o->key * o->value;
  r->operations = 2 * rows * o->value_heads * o->key * o->value * (2ull * o->steps + 1);
}

static deltaic_status measure(struct operator_run *m, deltaic_operator_result *r) {
  deltaic_status status = m->b->functions->recorder_create(m->b, &m->c);
  if (status == DELTAIC_OK) status = arena_zero(&m->arena, m->b);
  if (status == DELTAIC_OK) status = operator_inputs(m);
  if (status == DELTAIC_OK) status = check(m, r);
  if (status == DELTAIC_OK) status = time_runs(m, false, r);
  if (status == DELTAIC_OK && r->seconds < SHORT && !measure_software(m->b)) status = time_chain(m, r);
  if (status == DELTAIC_OK) count_work(m, r);
  return status;
}

static deltaic_status check_operator(deltaic_operator *o) {
  if (!o->steps) o->steps = 1;
  if (!o->blocks) o->blocks = 1;
  if (!o->value_heads) o->value_heads = o->heads;
  if (!o->repeat) o->repeat = 20;
  const struct {
    const char *name;
    uint32_t value;
    bool right;
  } fields[] = {
      {"sequences", o->sequences, o->sequences > 0},
      {"tokens", o->tokens, o->tokens > 0},
      {"heads", o->heads, o->heads > 0},
      {"key", o->key, o->key > 0},
      {"value", o->value, o->value > 0},
      {"value_heads", o->value_heads, o->heads && o->value_heads % o->heads == 0},
      {"blocks", o->blocks, o->blocks <= HH_MOST && o->key % o->blocks == 0},
      {"steps", o->steps, o->steps == 1 || o->blocks == 1},
      {"repeat", o->repeat, o->repeat <= MEASURE_MOST_RUNS},
      {"rule", (uint32_t)o->rule, o->rule <= DELTAIC_RULE_CHUNK},
      {"precision", (uint32_t)o->precision, o->precision <= DELTAIC_PRECISION_FLOAT32},
  };
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (!fields[i].right)
      return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_operator: %s is %u, which does not fit", fields[i].name,
                  fields[i].value);
  const double rows = (double)o->sequences * o->tokens, state = (double)o->value_heads * o->key * o->value;
  const double cols = (1.0 + o->steps) * o->heads * o->key + (double)o->steps * o->value_heads * o->value;
  if (rows > INT32_MAX || cols > INT32_MAX || state > INT32_MAX)
    return fail(DELTAIC_UNSUPPORTED, "deltaic_operator: the operator is larger than kernels can index");
  return DELTAIC_OK;
}

deltaic_status deltaic_device_measure_operator(deltaic_device *d, const deltaic_operator *op,
                                               deltaic_operator_result *result) {
  struct operator_run m = {0};
  if (!d || !op || !result)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_device_measure_operator: %s is NULL",
                !d    ? "device"
                : !op ? "op"
                      : "result");
  deltaic_status status = options_read(&m.o, sizeof m.o, op, "deltaic_operator");
  if (status == DELTAIC_OK) status = check_operator(&m.o);
  if (status != DELTAIC_OK) return status;
  deltaic_operator_result r = {0};
  m.b = d->backend;
  m.awake = d->awake;
  m.began = measure_now();
  m.turns = 1;
  m.padded = m.cols = (1 + m.o.steps) * m.o.heads * m.o.key + m.o.steps * m.o.value_heads * m.o.value;
  status = allocate(&m);
  if (status == DELTAIC_OK && d->collects) {
    list_operators(&m, d->collects, false);
    list_operators(&m, d->collects, true);
  } else if (status == DELTAIC_OK) {
    status = measure(&m, &r);
  }
  if (status == DELTAIC_OK) *result = r;
  if (m.c) m.b->functions->recorder_free(m.c);
  arena_free(&m.arena, m.b);
  oplist_free(&m.list);
  return status;
}
