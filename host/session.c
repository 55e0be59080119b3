// session: lays out state, scratch and control memory once, then evaluates tokens: a prompt in slices of `batch`
// tokens, streamed; one token by replaying a recording. No tensor is allocated after creation; the first call of each
// kind compiles its kernels and records.
#include "session.h"

#include "option_structs.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_CONTEXT = 4096, DEFAULT_BATCH = 512, MOST_BATCH = 4096 };

// ---------------------------------------------------------------- layout

static deltaic_status read_options(struct deltaic_session *s, const deltaic_session_options *options) {
  static const enum delta_form forms[] = {DELTA_AUTO, DELTA_RECURRENT, DELTA_CHUNK};
  struct state_shape *shape = &s->shape;
  deltaic_session_options o;
  deltaic_status status = options_read(&o, sizeof o, options, "deltaic_session_options");
  if (status == DELTAIC_OK && (unsigned)o.rule > DELTAIC_RULE_CHUNK)
    status = fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_options: rule is %d", (int)o.rule);
  if (status == DELTAIC_OK && (unsigned)o.precision > DELTAIC_PRECISION_FLOAT32)
    status = fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_options: precision is %d", (int)o.precision);
  if (status == DELTAIC_OK) s->form = forms[o.rule];
  s->matrices = o.precision == DELTAIC_PRECISION_FAST;
  *shape = (struct state_shape){.sequences = 1, .context = DEFAULT_CONTEXT, .batch = DEFAULT_BATCH};
  if (o.context) shape->context = o.context;
  if (o.batch) shape->batch = o.batch < MOST_BATCH ? o.batch : MOST_BATCH;
  return status;
}

static double mib(uint64_t bytes) { return (double)bytes / (1 << 20); }

// A tensor of a layer's state that is larger than an op of the backend can be given.
static deltaic_status refuse_state(const struct deltaic_session *s, uint32_t layer, const struct state_entry *e) {
  const struct backend *b = s->model->backend;
  const char *kind = s->model->spec.layers[layer].mixer->name;
  const double bytes = mib((uint64_t)e->tensor->stride * sizeof(float)), limit = mib(b->max_binding_bytes);
  if (!e->position_cols || e->window)
    return fail(DELTAIC_UNSUPPORTED, "layer %u (%s): its %s of %.1f MiB is more than the %.1f MiB that %s can bind",
                layer, kind, e->window ? "window" : "state", bytes, limit, b->info.name);
  return fail(
      DELTAIC_UNSUPPORTED,
      "layer %u (%s): its cache for a context of %u tokens is %.1f MiB, more than the %.1f MiB that %s can bind; "
      "choose a smaller context, at most %llu",
      layer, kind, s->shape.context, bytes, limit, b->info.name,
      (unsigned long long)(b->max_binding_bytes / (e->position_cols * sizeof(float))));
}

static deltaic_status declare_layer(struct deltaic_session *s, uint32_t layer) {
  const struct layer_spec *l = &s->model->spec.layers[layer];
  s->layers[layer] = calloc(1, l->mixer->state_bytes);
  if (!s->layers[layer]) return fail_memory("a layer's state", l->mixer->state_bytes);
  l->mixer->state(l->spec, &s->shape, &s->state, s->layers[layer], &s->lists[layer]);
  if (s->state.status != DELTAIC_OK)
    return fail(s->state.status, "the state of layer %u (%s), for a context of %u tokens: %s", layer, l->mixer->name,
                s->shape.context, deltaic_last_error());
  for (int e = 0; e < s->lists[layer].count; e++) {
    const struct state_entry *entry = &s->lists[layer].entries[e];
    if ((uint64_t)entry->tensor->rows * entry->tensor->stride * sizeof(float) > s->model->backend->max_binding_bytes)
      return refuse_state(s, layer, entry);
  }
  return DELTAIC_OK;
}

static deltaic_status declare_state(struct deltaic_session *s) {
  const struct model_spec *spec = &s->model->spec;
  s->layers = calloc(spec->L, sizeof *s->layers);
  s->lists = calloc(spec->L, sizeof *s->lists);
  if (!s->layers || !s->lists) return fail_memory("a session's list of layers", spec->L * sizeof *s->lists);
  for (uint32_t i = 0; i < spec->L; i++) {
    deltaic_status status = declare_layer(s, i);
    if (status != DELTAIC_OK) return status;
  }
  uint32_t words = (spec->V + 31) / 32;
  arena_add(&s->state, &s->seen, DTYPE_I32, 1, words, words);
  arena_add(&s->state, &s->last, DTYPE_F32, 1, spec->V, spec->V);
  return s->state.status;
}

// What layers take in turn: the bytes of the greediest, and of the largest tensor of all; x is of them too.
static struct scratch measure_layers(const struct deltaic_session *s) {
  const struct deltaic_model *m = s->model;
  struct scratch most = {.largest = (uint64_t)s->shape.batch * m->spec.D * sizeof(float)};
  for (uint32_t i = 0; i < m->spec.L; i++) {
    struct scratch layer = {0};
    block_scratch(&m->spec, &m->spec.layers[i], m->mixers[i], m->backend, &layer, s->shape.batch, s->shape.sequences);
    if (layer.used > most.used) most.used = layer.used;
    if (layer.largest > most.largest) most.largest = layer.largest;
  }
  return most;
}

// Prompts go in slices as long as was asked, or as long as one binding holds every activation of.
static deltaic_status fit_batch(struct deltaic_session *s) {
  const struct backend *b = s->model->backend;
  const uint64_t V = s->model->spec.V, row = V * sizeof(float);
  const uint64_t indexed = UINT32_MAX * sizeof(float), room = b->max_buffer_bytes;
  struct scratch m = measure_layers(s);
  while (s->shape.batch > 1 && (m.largest > b->max_binding_bytes || m.used > (room < indexed ? room : indexed))) {
    s->shape.batch /= 2;
    m = measure_layers(s);
  }
  for (s->logit_rows = LOGIT_ROWS; s->logit_rows > 1 && s->logit_rows * row > b->max_binding_bytes;) s->logit_rows /= 2;
  uint64_t largest = m.largest > row ? m.largest : row;
  if (largest <= b->max_binding_bytes) return DELTAIC_OK;
  return fail(DELTAIC_UNSUPPORTED, "one token's activations take %.1f MiB, more than the %.1f MiB that %s can bind",
              mib(largest), mib(b->max_binding_bytes), b->info.name);
}

static deltaic_status declare_scratch(struct deltaic_session *s) {
  const struct model_spec *spec = &s->model->spec;
  const uint64_t overlay = measure_layers(s).used / sizeof(float);
  const uint64_t aligned = round_up(spec->D, TENSOR_ALIGN / sizeof(float)); // any row of h may begin a view
  arena_add(&s->scratch, &s->x, DTYPE_F32, s->shape.batch, spec->D, spec->D);
  arena_add(&s->scratch, &s->h, DTYPE_F32, LOGIT_ROWS, spec->D, aligned);
  arena_add(&s->scratch, &s->rows, DTYPE_F32, s->logit_rows, spec->V, spec->V);
  arena_add(&s->scratch, &s->draw, DTYPE_F32, 1, spec->V, spec->V);
  arena_add(&s->scratch, &s->overlay, DTYPE_F32, 1, overlay, overlay);
  return s->scratch.status;
}

static deltaic_status declare_control(struct deltaic_session *s) {
  arena_add(&s->control, &s->sequences, DTYPE_I32, 1, 4, 4);
  arena_add(&s->control, &s->tokens, DTYPE_I32, s->shape.batch, 1, 1);
  arena_add(&s->control, &s->sampling, DTYPE_I32, 1, 8, 8);
  return s->control.status;
}

static deltaic_status declare(struct deltaic_session *s) {
  deltaic_status status = fit_batch(s);
  if (status == DELTAIC_OK) status = declare_state(s);
  if (status == DELTAIC_OK) status = declare_scratch(s);
  if (status == DELTAIC_OK) status = declare_control(s);
  return status;
}

static void session_clear(struct deltaic_session *s) {
  struct backend *b = s->model->backend;
  if (s->prefill) b->ops->recorder_free(s->prefill);
  if (s->step) b->ops->recorder_free(s->step);
  if (s->next) b->ops->recorder_free(s->next);
  probe_free(&s->probe);
  arena_free(&s->state, b);
  arena_free(&s->scratch, b);
  arena_free(&s->control, b);
  for (uint32_t i = 0; s->layers && i < s->model->spec.L; i++) free(s->layers[i]);
  free(s->layers);
  free(s->lists);
}

deltaic_status session_memory(const struct deltaic_model *m, const deltaic_session_options *options,
                              deltaic_memory *memory) {
  struct deltaic_session s = {.model = (struct deltaic_model *)m};
  deltaic_status status = read_options(&s, options);
  if (status == DELTAIC_OK) status = declare(&s);
  if (status == DELTAIC_OK)
    *memory = (deltaic_memory){.weights_bytes = m->weights.arena.bytes,
                               .state_bytes = s.state.bytes,
                               .scratch_bytes = s.scratch.bytes + s.control.bytes};
  for (uint32_t i = 0; status == DELTAIC_OK && i < m->spec.L; i++)
    for (int e = 0; e < s.lists[i].count; e++)
      if (s.lists[i].entries[e].position_cols && !s.lists[i].entries[e].window)
        memory->cache_per_token += s.lists[i].entries[e].position_cols * sizeof(float);
  session_clear(&s);
  return status;
}

deltaic_status deltaic_session_create(deltaic_model *model, const deltaic_session_options *options,
                                      deltaic_session **out) {
  if (!model || !out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_create: model and out must not be NULL");
  struct deltaic_session *s = calloc(1, sizeof *s);
  if (!s) return fail_memory("a session", sizeof *s);
  struct backend *b = model->backend;
  s->model = model;
  atomic_init(&s->cancel, false);
  deltaic_status status = read_options(s, options);
  if (status == DELTAIC_OK) status = declare(s);
  if (status == DELTAIC_OK) status = arena_allocate(&s->state, b, MEMORY_DEVICE, "the state of a session");
  if (status == DELTAIC_OK) status = arena_allocate(&s->scratch, b, MEMORY_DEVICE, "the activations of a session");
  if (status == DELTAIC_OK) status = arena_allocate(&s->control, b, MEMORY_SHARED, "the control block of a session");
  if (status == DELTAIC_OK) status = b->ops->recorder_create(b, &s->prefill);
  if (status == DELTAIC_OK) status = b->ops->recorder_create(b, &s->step);
  if (status == DELTAIC_OK) status = b->ops->recorder_create(b, &s->next);
  if (status == DELTAIC_OK) s->prefill->matrices = s->matrices;
  if (status == DELTAIC_OK) status = deltaic_session_reset(s);
  if (status != DELTAIC_OK) {
    deltaic_session_free(s);
    return status;
  }
  *out = s;
  return DELTAIC_OK;
}

void deltaic_session_free(deltaic_session *s) {
  if (!s) return;
  session_clear(s);
  free(s);
}

// ---------------------------------------------------------------- recording

// x <- the model's last residual stream for the call's T tokens.
static void record_layers(struct deltaic_session *s, struct recorder *c, uint32_t T) {
  const struct deltaic_model *m = s->model;
  struct call call = {.c = c, .sequences = s->sequences, .T = T, .longest = T, .form = T == 1 ? DELTA_AUTO : s->form};
  call.scratch = (struct scratch){.buffer = s->overlay.buffer, .used = s->overlay.offset};
  call.probe = s->probe.kinds ? &s->probe : NULL;
  struct tensor x = tensor_rows(s->x, 0, T);
  c->ops->embed(c, x, m->embedding, tensor_rows(s->tokens, 0, T));
  for (uint32_t i = 0; i < m->spec.L; i++) {
    if (call.probe) probe_layer(call.probe, i);
    block_forward(&m->spec, &m->spec.layers[i], &m->blocks[i], m->mixers[i], s->layers[i], &call, x);
  }
}

// last <- logits after the call's last token.
static void record_last(struct deltaic_session *s, struct recorder *c) {
  const struct deltaic_model *m = s->model;
  struct tensor h = tensor_rows(s->h, 0, 1);
  c->ops->rmsnorm(c, h, s->x, m->norm, s->sequences, m->spec.norm_eps);
  c->ops->linear(c, s->last, (struct linear_input){.x = h}, m->head, (struct tensor){0}, false);
}

static deltaic_status run_prefill(struct deltaic_session *s, uint32_t T, bool logits) {
  struct recorder *c = s->prefill;
  c->ops->recorder_begin(c, false, &s->cancel);
  c->ops->mark(c, s->seen, tensor_rows(s->tokens, 0, T), s->sequences);
  record_layers(s, c, T);
  if (logits) record_last(s, c);
  deltaic_status status = c->ops->recorder_run(c);
  return s->probe.kinds && s->probe.status != DELTAIC_OK ? s->probe.status : status;
}

static deltaic_status run_step(struct deltaic_session *s) {
  struct recorder *c = s->step;
  if (!s->step_recorded) {
    c->ops->recorder_begin(c, c->backend->replays, &s->cancel);
    c->ops->mark(c, s->seen, tensor_rows(s->tokens, 0, 1), s->sequences);
    record_layers(s, c, 1);
    record_last(s, c);
  }
  deltaic_status status = c->ops->recorder_run(c);
  s->step_recorded = status == DELTAIC_OK && c->backend->replays;
  return status;
}

static deltaic_status run_next(struct deltaic_session *s) {
  struct recorder *c = s->next;
  if (!s->next_recorded) {
    c->ops->recorder_begin(c, c->backend->replays, &s->cancel);
    c->ops->sample(c, s->tokens, s->sequences, s->seen, s->last, s->sampling, s->draw);
    record_layers(s, c, 1);
    record_last(s, c);
  }
  deltaic_status status = c->ops->recorder_run(c);
  s->next_recorded = status == DELTAIC_OK && c->backend->replays;
  return status;
}

// Logits of rows 0 ... T - 1 of x into out, a few rows at a time: normed by LOGIT_ROWS, then logit_rows of these.
static deltaic_status run_all_logits(struct deltaic_session *s, uint32_t T, float *out) {
  const struct deltaic_model *m = s->model;
  struct recorder *c = s->prefill;
  struct backend *b = m->backend;
  for (uint32_t t = 0; t < T; t += s->logit_rows) {
    uint32_t n = T - t < s->logit_rows ? T - t : s->logit_rows, first = t % LOGIT_ROWS;
    uint32_t normed = T - t < LOGIT_ROWS ? T - t : LOGIT_ROWS;
    struct tensor rows = tensor_rows(s->rows, 0, n);
    c->ops->recorder_begin(c, false, &s->cancel);
    if (!first)
      c->ops->rmsnorm(c, tensor_rows(s->h, 0, normed), tensor_rows(s->x, t, normed), m->norm, (struct tensor){0},
                      m->spec.norm_eps);
    c->ops->linear(c, rows, (struct linear_input){.x = tensor_rows(s->h, first, n)}, m->head, (struct tensor){0},
                   false);
    deltaic_status status = c->ops->recorder_run(c);
    if (status != DELTAIC_OK) return status;
    status = b->ops->buffer_read(b, rows.buffer, rows.offset, out + (size_t)t * m->spec.V,
                                 (uint64_t)n * m->spec.V * sizeof *out);
    if (status != DELTAIC_OK) return status;
  }
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- evaluation

void session_place(struct deltaic_session *s, uint32_t T) {
  struct sequence *q = tensor_row(&s->sequences, 0);
  *q = (struct sequence){.row = 0, .T = T, .pos = (uint32_t)s->position, .slot = 0};
}

deltaic_status session_check(const struct deltaic_session *s, const char *function) {
  if (!s) return fail(DELTAIC_INVALID_ARGUMENT, "%s: session is NULL", function);
  if (!s->broken) return DELTAIC_OK;
  return fail(DELTAIC_BAD_STATE, "%s: an earlier failure left the session undefined: reset, load or free it", function);
}

static deltaic_status check_room(const struct deltaic_session *s, size_t n) {
  uint64_t room = model_grows(&s->model->spec) ? s->shape.context : INT32_MAX;
  if (n <= room && s->position <= room - n) return DELTAIC_OK;
  return fail(DELTAIC_CONTEXT_FULL, "the context of %llu tokens is full: %llu are there and %llu more were given",
              (unsigned long long)room, (unsigned long long)s->position, (unsigned long long)n);
}

static deltaic_status check_tokens(const struct deltaic_session *s, const int32_t *tokens, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (tokens[i] < 0 || (uint32_t)tokens[i] >= s->model->spec.V)
      return fail(DELTAIC_INVALID_ARGUMENT, "token %zu is %d, but the vocabulary has %u", i, tokens[i],
                  s->model->spec.V);
  return DELTAIC_OK;
}

static deltaic_status read_last(struct deltaic_session *s, float *out) {
  struct backend *b = s->model->backend;
  return b->ops->buffer_read(b, s->last.buffer, s->last.offset, out, s->model->spec.V * sizeof *out);
}

static bool take_cancel(struct deltaic_session *s) { return atomic_exchange(&s->cancel, false); }

static deltaic_status cancelled(void) { return fail(DELTAIC_CANCELLED, "the session was cancelled"); }

// A failure in the middle of a call leaves states of different positions.
static deltaic_status break_session(struct deltaic_session *s, deltaic_status status) {
  s->broken = true;
  s->has_logits = false;
  if (status == DELTAIC_CANCELLED) take_cancel(s);
  return status;
}

static deltaic_status eval_slice(struct deltaic_session *s, const int32_t *tokens, uint32_t T, bool last,
                                 float *all_logits) {
  memcpy(tensor_row(&s->tokens, 0), tokens, T * sizeof *tokens);
  session_place(s, T);
  const bool step = T == 1 && !s->probe.kinds; // a replayed recording cannot stop to be looked at
  s->probe.position = s->position;
  s->probe.tokens = T;
  s->probe.status = DELTAIC_OK;
  deltaic_status status = step ? run_step(s) : run_prefill(s, T, last);
  if (status == DELTAIC_OK && all_logits) status = step ? read_last(s, all_logits) : run_all_logits(s, T, all_logits);
  if (status == DELTAIC_OK && atomic_load(&s->cancel)) status = cancelled();
  if (status == DELTAIC_OK) s->position += T;
  return status;
}

deltaic_status deltaic_session_eval(deltaic_session *s, const int32_t *tokens, size_t n, deltaic_logits logits,
                                    float *out) {
  deltaic_status status = session_check(s, "deltaic_session_eval");
  if (status != DELTAIC_OK) return status;
  if (!tokens || !n || (unsigned)logits > DELTAIC_LOGITS_ALL || (logits != DELTAIC_LOGITS_NONE && !out))
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_eval: tokens and n, and out with logits, are required");
  status = check_tokens(s, tokens, n);
  if (status == DELTAIC_OK) status = check_room(s, n);
  if (status != DELTAIC_OK) return status;
  if (take_cancel(s)) return break_session(s, cancelled());
  const size_t V = s->model->spec.V;
  for (size_t i = 0; i < n;) {
    uint32_t T = n - i < s->shape.batch ? (uint32_t)(n - i) : s->shape.batch;
    status = eval_slice(s, tokens + i, T, i + T == n, logits == DELTAIC_LOGITS_ALL ? out + i * V : NULL);
    if (status != DELTAIC_OK) return break_session(s, status);
    i += T;
  }
  s->has_logits = true;
  if (logits == DELTAIC_LOGITS_LAST) status = read_last(s, out);
  return status == DELTAIC_OK ? DELTAIC_OK : break_session(s, status);
}

static struct sampling sampling_of(const deltaic_sampling *o) {
  return (struct sampling){.temperature = o->temperature,
                           .top_p = o->top_p,
                           .min_p = o->min_p,
                           .repetition_penalty = o->repetition_penalty,
                           .top_k = o->top_k,
                           .seed_low = (uint32_t)o->seed,
                           .seed_high = (uint32_t)(o->seed >> 32)};
}

static deltaic_status check_sampling(const deltaic_sampling *o) {
  if (!(o->temperature >= 0 && o->temperature <= 1e6f))
    return fail(DELTAIC_INVALID_ARGUMENT, "sampling: temperature is %g, not in 0 ... 1e6", o->temperature);
  if (!(o->top_p >= 0 && o->top_p <= 1))
    return fail(DELTAIC_INVALID_ARGUMENT, "sampling: top_p is %g, not in 0 ... 1", o->top_p);
  if (!(o->min_p >= 0 && o->min_p <= 1))
    return fail(DELTAIC_INVALID_ARGUMENT, "sampling: min_p is %g, not in 0 ... 1", o->min_p);
  if (!(o->repetition_penalty >= 0 && o->repetition_penalty <= 1e6f))
    return fail(DELTAIC_INVALID_ARGUMENT, "sampling: repetition_penalty is %g, not in 0 ... 1e6",
                o->repetition_penalty);
  return DELTAIC_OK;
}

deltaic_status deltaic_session_next(deltaic_session *s, const deltaic_sampling *sampling, int32_t *token,
                                    float *logits) {
  deltaic_status status = session_check(s, "deltaic_session_next");
  if (status != DELTAIC_OK) return status;
  if (!token) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_next: token is NULL");
  if (!s->has_logits) return fail(DELTAIC_BAD_STATE, "deltaic_session_next: nothing has been evaluated yet");
  deltaic_sampling o;
  status = options_read(&o, sizeof o, sampling, "deltaic_sampling");
  if (status == DELTAIC_OK) status = check_sampling(&o);
  if (status == DELTAIC_OK) status = check_room(s, 1);
  if (status != DELTAIC_OK) return status;
  if (take_cancel(s)) return break_session(s, cancelled());
  *(struct sampling *)tensor_row(&s->sampling, 0) = sampling_of(&o);
  status = run_next(s);
  if (status == DELTAIC_OK && atomic_load(&s->cancel)) status = cancelled();
  if (status == DELTAIC_OK && logits) status = read_last(s, logits);
  if (status != DELTAIC_OK) return break_session(s, status);
  s->position++;
  memcpy(token, tensor_row(&s->tokens, 0), sizeof *token);
  return DELTAIC_OK;
}

deltaic_status deltaic_session_logits(deltaic_session *s, float *out) {
  deltaic_status status = session_check(s, "deltaic_session_logits");
  if (status != DELTAIC_OK) return status;
  if (!out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_logits: out is NULL");
  if (!s->has_logits) return fail(DELTAIC_BAD_STATE, "deltaic_session_logits: nothing has been evaluated yet");
  return read_last(s, out);
}

uint64_t deltaic_session_position(const deltaic_session *s) { return s ? s->position : 0; }

deltaic_status deltaic_session_reset(deltaic_session *s) {
  if (!s) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_reset: session is NULL");
  struct backend *b = s->model->backend;
  deltaic_status status = arena_zero(&s->state, b);
  // Padding between a view's rows is read and multiplied by zero weights: it must be a number.
  if (status == DELTAIC_OK) status = arena_zero(&s->scratch, b);
  if (status != DELTAIC_OK) return break_session(s, status);
  s->position = 0;
  s->has_logits = s->broken = false;
  session_place(s, 0);
  return DELTAIC_OK;
}

void deltaic_session_cancel(deltaic_session *s) {
  if (s) atomic_store(&s->cancel, true);
}

deltaic_status deltaic_session_probe(deltaic_session *s, uint32_t kinds, deltaic_probe_function probe, void *user) {
  if (!s) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_probe: session is NULL");
  if (!probe != !kinds || kinds >= 2 * DELTAIC_PROBE_STATE)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_probe: kinds is %u, with%s a function", kinds,
                probe ? "" : "out");
  probe_free(&s->probe);
  s->probe = (struct probe){.kinds = kinds, .function = probe, .user = user, .cancel = &s->cancel};
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- counters and profile

void deltaic_session_get_counters(const deltaic_session *s, deltaic_counters *counters) {
  const struct recorder *recorders[] = {s->prefill, s->step, s->next};
  *counters = (deltaic_counters){0};
  for (int i = 0; i < 3; i++) {
    deltaic_counters c = recorders[i]->ops->recorder_counters(recorders[i]);
    counters->submits += c.submits;
    counters->recordings += c.recordings;
    counters->dispatches += c.dispatches;
  }
}

// Recordings carry their time stamps: those made before are of no use.
static deltaic_status set_profile(struct deltaic_session *s, bool on) {
  struct recorder *recorders[] = {s->prefill, s->step, s->next};
  s->step_recorded = s->next_recorded = false;
  for (int i = 0; i < 3; i++) {
    deltaic_status status = recorders[i]->ops->recorder_profile(recorders[i], on);
    if (status != DELTAIC_OK) return status;
  }
  return DELTAIC_OK;
}

deltaic_status deltaic_session_profile_begin(deltaic_session *s) {
  if (!s) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_profile_begin: session is NULL");
  return set_profile(s, true);
}

static size_t add_times(deltaic_kernel_time *times, size_t count, size_t capacity, const deltaic_kernel_time *more,
                        size_t n) {
  for (size_t i = 0; i < n; i++) {
    size_t k = 0;
    while (k < count && strcmp(times[k].name, more[i].name)) k++;
    if (k == capacity) continue;
    if (k == count) {
      times[count++] = more[i];
      continue;
    }
    times[k].dispatches += more[i].dispatches;
    times[k].seconds += more[i].seconds;
    times[k].bytes += more[i].bytes;
    times[k].operations += more[i].operations;
  }
  return count;
}

deltaic_status deltaic_session_profile_end(deltaic_session *s, deltaic_kernel_time *times, size_t capacity,
                                           size_t *count) {
  if (!s || !count || (capacity && !times))
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_profile_end: session, times and count are required");
  enum { KERNELS = 64 };
  deltaic_kernel_time all[KERNELS], part[KERNELS];
  struct recorder *recorders[] = {s->prefill, s->step, s->next};
  size_t n = 0;
  for (int i = 0; i < 3; i++) {
    size_t kernels = recorders[i]->ops->recorder_times(recorders[i], part, KERNELS);
    n = add_times(all, n, KERNELS, part, kernels < KERNELS ? kernels : KERNELS);
  }
  for (size_t i = 0; i < n && i < capacity; i++) times[i] = all[i];
  *count = n;
  return set_profile(s, false);
}
