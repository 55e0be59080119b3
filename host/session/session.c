// session: lays out state, scratch and control memory once. slice.c computes with them; no tensor is allocated after
// creation.
#include "session.h"

#include "device_handle.h"
#include "option_structs.h"

#include <stdio.h>
#include <stdlib.h>

enum { DEFAULT_CONTEXT = 4096, MOST_BATCH = 4096 };

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
  if (status == DELTAIC_OK && o.sequences > MOST_SEQUENCES)
    status = fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_options: sequences is %u; the limit is %d", o.sequences,
                  MOST_SEQUENCES);
  *shape = (struct state_shape){.sequences = 1, .context = DEFAULT_CONTEXT, .batch = s->model->backend->batch};
  if (o.sequences) shape->sequences = o.sequences;
  if (o.context) shape->context = o.context;
  if (o.batch) shape->batch = o.batch < MOST_BATCH ? o.batch : MOST_BATCH;
  if (shape->batch < shape->sequences) shape->batch = shape->sequences; // a slice has a row for each
  return status;
}

static double mib(uint64_t bytes) { return (double)bytes / (1 << 20); }

// Fails because a tensor of a layer's state is larger than the backend can bind.
static deltaic_status refuse_state(const struct deltaic_session *s, uint32_t layer, const struct state_entry *e) {
  const struct backend *b = s->model->backend;
  const char *kind = s->model->spec.layers[layer].mixer->name;
  const uint64_t B = s->shape.sequences, row = e->tensor->stride * sizeof(float);
  const double bytes = mib(B * row), limit = mib(b->max_binding_bytes);
  char many[64] = "", fewer[64] = "";
  if (B > 1) {
    snprintf(many, sizeof many, " for %u sequences", s->shape.sequences);
    if (row <= b->max_binding_bytes)
      snprintf(fewer, sizeof fewer, "; %llu sequences would fit", (unsigned long long)(b->max_binding_bytes / row));
  }
  if (!e->position_cols || e->window)
    return fail(DELTAIC_UNSUPPORTED, "layer %u (%s): its %s%s of %.1f MiB is more than the %.1f MiB that %s can bind%s",
                layer, kind, e->window ? "window" : "state", many, bytes, limit, b->info.name, fewer);
  return fail(
      DELTAIC_UNSUPPORTED,
      "layer %u (%s): its cache for a context of %u tokens%s is %.1f MiB, more than the %.1f MiB that %s can bind; "
      "choose a smaller context, at most %llu",
      layer, kind, s->shape.context, many, bytes, limit, b->info.name,
      (unsigned long long)(b->max_binding_bytes / (B * TENSOR_ALIGN) * (TENSOR_ALIGN / sizeof(float)) /
                           e->position_cols));
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
  state_add(&s->state, &s->seen, DTYPE_I32, &s->shape, (spec->V + 31) / 32);
  state_add(&s->state, &s->last, DTYPE_F32, &s->shape, spec->V);
  if (s->state.status != DELTAIC_OK) return s->state.status;
  const uint64_t bytes = (uint64_t)s->last.rows * s->last.stride * sizeof(float);
  if (bytes <= s->model->backend->max_binding_bytes) return DELTAIC_OK;
  return fail(DELTAIC_UNSUPPORTED, "the logits of %u sequences take %.1f MiB, more than the %.1f MiB that %s can bind",
              s->shape.sequences, mib(bytes), mib(s->model->backend->max_binding_bytes), s->model->backend->info.name);
}

// The scratch of a layer: the most for both precisions of operands, since a call may be too small for coopmat, and by
// chunks, which need most.
struct demand {
  uint64_t bytes, largest; // of all tensors; of the largest one
};

static struct buffer elsewhere; // stands for memory outside the scratch

static void measure_list(struct deltaic_session *s, struct demand *most) {
  uint64_t largest, bytes = s->model->backend->functions->list_bytes(s->model->backend, &s->list, &largest);
  if (bytes > most->bytes) most->bytes = bytes;
  if (largest > most->largest) most->largest = largest;
}

static void measure_layer(struct deltaic_session *s, uint32_t i, const void *state, struct demand *most) {
  const struct deltaic_model *m = s->model;
  const uint32_t T = s->shape.batch;
  struct oplist *l = &s->list;
  for (uint32_t B = 1; B <= s->shape.sequences; B++)
    for (int fast = 0; fast <= s->matrices; fast++) {
      oplist_begin(l);
      l->matrices = fast ? MATRICES_BEST : MATRICES_NONE;
      l->form = DELTA_CHUNK;
      l->longest = 0;
      struct call call = {.l = l, .sequences = {.rows = B}, .T = T};
      struct tensor x = oplist_value(l, T, m->spec.D);
      x = block_forward(&m->spec, &m->spec.layers[i], &m->blocks[i], m->mixers[i], state, &call, x);
      oplist_bind(l, x, (struct tensor){.buffer = &elsewhere});
      measure_list(s, most);
      if (l->status) return;
    }
}

// The scratch of the embedding, which needs none without an adapter, beside the residual stream.
static void measure_embedding(struct deltaic_session *s, struct demand *most) {
  const struct deltaic_model *m = s->model;
  const struct tensor tokens = {.buffer = &elsewhere, .rows = s->shape.batch, .cols = 1, .stride = 1};
  struct oplist *l = &s->list;
  for (int fast = 0; m->embedding.low && fast <= s->matrices; fast++) {
    oplist_begin(l);
    l->matrices = fast ? MATRICES_BEST : MATRICES_NONE;
    l->longest = 0;
    op_embed(l, oplist_value(l, s->shape.batch, m->spec.D), m->embedding, tokens);
    measure_list(s, most);
  }
}

// The scratch of the output head and of the norm before it; without an adapter the head needs none.
static void measure_head(struct deltaic_session *s, struct demand *most) {
  const struct deltaic_model *m = s->model;
  const struct tensor head = m->spec.tied ? m->embedding : m->head;
  const uint32_t rows = s->shape.sequences > s->logit_rows ? s->shape.sequences : s->logit_rows;
  struct oplist *l = &s->list;
  const struct tensor logits = {.buffer = &elsewhere, .rows = rows, .cols = m->spec.V, .stride = m->spec.V}, none = {0};
  for (int fast = 0; head.low && fast <= s->matrices; fast++) {
    oplist_begin(l);
    l->matrices = fast ? MATRICES_BEST : MATRICES_NONE;
    l->longest = 0;
    op_linear(l, logits, oplist_value(l, rows, m->spec.D), head, none);
    measure_list(s, most);
  }
}

// The scratch that layers and the head use in turn: the most bytes, and those of the largest tensor. Measures calls of
// any number of sequences: more of them may need less, since an operation may find them too many for chunks.
static deltaic_status measure_layers(struct deltaic_session *s, struct demand *most) {
  const struct deltaic_model *m = s->model;
  *most = (struct demand){0};
  for (uint32_t i = 0; i < m->spec.L; i++) {
    const struct mixer *mixer = m->spec.layers[i].mixer;
    struct arena arena = {0};
    struct state_list list;
    void *state = calloc(1, mixer->state_bytes);
    if (!state) return fail_memory("a layer's state", mixer->state_bytes);
    mixer->state(m->spec.layers[i].spec, &s->shape, &arena, state, &list);
    if (!arena.status) measure_layer(s, i, state, most); // else declare_state() reports what is too large
    arena_free(&arena, m->backend);
    free(state);
    if (s->list.status) return s->list.status;
  }
  measure_embedding(s, most);
  measure_head(s, most);
  return s->list.status;
}

// Makes slices as long as requested, or as long as one binding can hold every activation; a slice has at least a row
// for every sequence.
static deltaic_status fit_batch(struct deltaic_session *s) {
  const struct backend *b = s->model->backend;
  const uint64_t V = s->model->spec.V, row = V * sizeof(float);
  const uint64_t indexed = UINT32_MAX * sizeof(float), room = b->max_buffer_bytes;
  struct demand m;
  for (s->logit_rows = LOGIT_ROWS; s->logit_rows > 1 && s->logit_rows * row > b->max_binding_bytes;) s->logit_rows /= 2;
  deltaic_status status = measure_layers(s, &m);
  const uint32_t least = s->shape.sequences;
  while (!status && s->shape.batch > least &&
         (m.largest > b->max_binding_bytes || m.bytes > (room < indexed ? room : indexed))) {
    s->shape.batch = s->shape.batch / 2 > least ? s->shape.batch / 2 : least;
    status = measure_layers(s, &m);
  }
  if (status) return status;
  s->overlay_bytes = m.bytes;
  uint64_t largest = m.largest > row ? m.largest : row;
  if (largest <= b->max_binding_bytes) return DELTAIC_OK;
  char many[64] = "";
  if (least > 1) snprintf(many, sizeof many, " in each of %u sequences", least);
  return fail(DELTAIC_UNSUPPORTED, "one token's activations%s take %.1f MiB, more than the %.1f MiB that %s can bind",
              many, mib(largest), mib(b->max_binding_bytes), b->info.name);
}

static deltaic_status declare_scratch(struct deltaic_session *s) {
  const struct model_spec *spec = &s->model->spec;
  const uint64_t overlay = s->overlay_bytes / sizeof(float);
  const uint64_t aligned = round_up(spec->D, TENSOR_ALIGN / sizeof(float)); // a view may begin at any row of h
  arena_add(&s->scratch, &s->x, DTYPE_F32, s->shape.batch, spec->D, spec->D);
  const uint32_t B = s->shape.sequences; // sequences, whose last rows give logits
  arena_add(&s->scratch, &s->h, DTYPE_F32, B > LOGIT_ROWS ? B : LOGIT_ROWS, spec->D, aligned);
  arena_add(&s->scratch, &s->rows, DTYPE_F32, B > s->logit_rows ? B : s->logit_rows, spec->V, spec->V);
  arena_add(&s->scratch, &s->overlay, DTYPE_F32, 1, overlay, overlay);
  const uint64_t parts = s->matrices ? s->model->backend->parts_bytes / sizeof(float) : 0;
  if (parts) arena_add(&s->scratch, &s->parts, DTYPE_F32, 1, parts, parts);
  return s->scratch.status;
}

static deltaic_status declare_control(struct deltaic_session *s) {
  arena_add(&s->control, &s->sequences, DTYPE_I32, s->shape.sequences, 4, 4);
  arena_add(&s->control, &s->tokens, DTYPE_I32, s->shape.batch, 1, 1);
  arena_add(&s->control, &s->scored, DTYPE_I32, s->shape.batch, 4, 4);
  arena_add(&s->control, &s->targets, DTYPE_I32, s->shape.batch, 1, 1);
  arena_add(&s->control, &s->scores, DTYPE_F32, s->shape.batch, 2, 2);
  arena_add(&s->control, &s->sampling, DTYPE_I32, s->shape.sequences, 8, 8);
  return s->control.status;
}

static deltaic_status declare(struct deltaic_session *s) {
  deltaic_status status = fit_batch(s);
  if (status == DELTAIC_OK) status = declare_state(s);
  if (status == DELTAIC_OK) status = declare_scratch(s);
  if (status == DELTAIC_OK) status = declare_control(s);
  return status;
}

deltaic_status session_recorders(const struct deltaic_session *s,
                                 deltaic_status (*visit)(struct recorder *c, void *context), void *context) {
  deltaic_status status = s->prefill ? visit(s->prefill, context) : DELTAIC_OK;
  for (uint32_t n = 0; n < s->shape.sequences && status == DELTAIC_OK; n++) {
    if (s->steps && s->steps[n].recorder) status = visit(s->steps[n].recorder, context);
    if (s->next && s->next[n].recorder && status == DELTAIC_OK) status = visit(s->next[n].recorder, context);
  }
  return status;
}

static deltaic_status free_recorder(struct recorder *c, void *context) {
  (void)context;
  c->functions->recorder_free(c);
  return DELTAIC_OK;
}

static void session_clear(struct deltaic_session *s) {
  struct backend *b = s->model->backend;
  session_recorders(s, free_recorder, NULL);
  free(s->steps);
  free(s->next);
  free(s->slots);
  probe_free(&s->probe);
  arena_free(&s->state, b);
  arena_free(&s->scratch, b);
  arena_free(&s->control, b);
  oplist_free(&s->list);
  for (uint32_t i = 0; s->layers && i < s->model->spec.L; i++) free(s->layers[i]);
  free(s->layers);
  free(s->lists);
}

static deltaic_status session_memory(const struct deltaic_model *m, const deltaic_session_options *options,
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
        memory->cache_per_token += (uint64_t)s.shape.sequences * s.lists[i].entries[e].position_cols * sizeof(float);
  session_clear(&s);
  return status;
}

deltaic_status deltaic_model_inspect(const deltaic_device *device, const char *path,
                                     const deltaic_session_options *session, deltaic_model_info *info,
                                     deltaic_memory *memory) {
  return deltaic_model_inspect_with(device, path, NULL, session, info, memory);
}

deltaic_status deltaic_model_inspect_with(const deltaic_device *device, const char *path,
                                          const deltaic_model_options *options, const deltaic_session_options *session,
                                          deltaic_model_info *info, deltaic_memory *memory) {
  if (!path) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_model_inspect: path is NULL");
  struct backend *cpu = NULL;
  deltaic_model_options o;
  deltaic_source source;
  deltaic_status status = model_options_read(options, &o, &source, "deltaic_model_inspect_with");
  if (status == DELTAIC_OK && !device) status = backend_open_cpu(0, &cpu);
  if (status != DELTAIC_OK) return status;
  struct deltaic_model m = {0};
  status = model_declare(&m, device ? device->backend : cpu, path, &o);
  if (status == DELTAIC_OK && memory) status = session_memory(&m, session, memory);
  if (status == DELTAIC_OK && info) *info = m.info;
  model_clear(&m);
  if (cpu) cpu->functions->close(cpu);
  return status;
}

deltaic_status deltaic_model_get_memory(const deltaic_model *m, const deltaic_session_options *session,
                                        deltaic_memory *memory) {
  if (refuse_null("deltaic_model_get_memory", "model,memory", m, memory)) return DELTAIC_INVALID_ARGUMENT;
  return session_memory(m, session, memory);
}

static deltaic_status create_slots(struct deltaic_session *s) {
  const uint32_t B = s->shape.sequences;
  s->slots = calloc(B, sizeof *s->slots);
  s->steps = calloc(B, sizeof *s->steps);
  s->next = calloc(B, sizeof *s->next);
  return s->slots && s->steps && s->next ? DELTAIC_OK : fail_memory("a session's sequences", B * sizeof *s->next);
}

deltaic_status deltaic_session_create(deltaic_model *model, const deltaic_session_options *options,
                                      deltaic_session **out) {
  if (refuse_null("deltaic_session_create", "model,out", model, out)) return DELTAIC_INVALID_ARGUMENT;
  struct deltaic_session *s = calloc(1, sizeof *s);
  if (!s) return fail_memory("a session", sizeof *s);
  struct backend *b = model->backend;
  s->model = model;
  atomic_init(&s->cancel, false);
  deltaic_status status = read_options(s, options);
  if (status == DELTAIC_OK) status = declare(s);
  if (status == DELTAIC_OK) status = arena_allocate(&s->state, b, MEMORY_DEVICE, "the state of a session");
  if (status == DELTAIC_OK) status = arena_allocate(&s->scratch, b, MEMORY_DEVICE, "the activations of a session");
  if (status == DELTAIC_OK && s->parts.buffer)
    status = b->functions->buffer_zero(b, s->parts.buffer, s->parts.offset, tensor_bytes(&s->parts));
  if (status == DELTAIC_OK) status = arena_allocate(&s->control, b, MEMORY_SHARED, "the control block of a session");
  if (status == DELTAIC_OK) status = create_slots(s);
  if (status == DELTAIC_OK) status = b->functions->recorder_create(b, &s->prefill);
  if (status == DELTAIC_OK) status = b->functions->recorder_create(b, &s->steps[0].recorder);
  if (status == DELTAIC_OK) status = b->functions->recorder_create(b, &s->next[0].recorder);
  s->list.matrices = s->matrices ? MATRICES_BEST : MATRICES_NONE;
  s->list.parts = s->parts;
  s->list.scratch = s->overlay;
  s->list.look = probe_look;
  s->list.look_context = &s->probe;
  if (status == DELTAIC_OK) status = deltaic_session_reset(s);
  if (status != DELTAIC_OK) {
    deltaic_session_free(s);
    return status;
  }
  *out = s;
  return DELTAIC_OK;
}

deltaic_status deltaic_session_reset(deltaic_session *s) {
  if (!s) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_reset: session is NULL");
  struct backend *b = s->model->backend;
  atomic_store(&s->cancel, false);
  deltaic_status status = arena_zero(&s->state, b);
  // Kernels multiply the padding between a view's rows by zero weights, so it must be finite.
  if (status == DELTAIC_OK) status = arena_zero(&s->scratch, b);
  for (uint32_t i = 0; i < s->shape.sequences; i++) s->slots[i] = (struct slot){.broken = status != DELTAIC_OK};
  return status;
}

void deltaic_session_free(deltaic_session *s) {
  if (!s) return;
  session_clear(s);
  free(s);
}
