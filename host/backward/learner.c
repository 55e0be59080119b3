// learner: see learner.h.
#include "learner_inside.h"

#include "hash.h"

#include <stdlib.h>

// ---------------------------------------------------------------- opening

struct wanted {
  learner_wants wants;
  void *user;
  bool any;
};

static void see_part(void *user, const struct weight_part *part, uint32_t cols, const float *d) {
  struct wanted *w = user;
  (void)cols, (void)d;
  w->any |= w->wants(w->user, part->source);
}

static deltaic_status is_wanted(const struct learner *l, const struct weight_request *r, struct wanted *w) {
  w->any = false;
  if (r->mixed || r->same || (r->row && !r->back)) return DELTAIC_OK;
  for (int i = 0; i < r->count; i++) see_part(w, &l->model.weights.parts[r->first_part + (uint64_t)i], 0, NULL);
  if (!r->back) return DELTAIC_OK;
  float *zeros = calloc(r->out->cols, sizeof *zeros);
  if (!zeros) return fail_memory("gradients", r->out->cols * sizeof *zeros);
  r->back(r->context.bytes, r->out->cols, zeros, see_part, w);
  free(zeros);
  return DELTAIC_OK;
}

static deltaic_status make_gradients(struct learner *l, learner_wants wants, void *user) {
  const struct weights *w = &l->model.weights;
  struct wanted wanted = {wants, user, false};
  deltaic_status status = DELTAIC_OK;
  if (!wants) return DELTAIC_OK;
  l->weights = calloc(w->count, sizeof *l->weights);
  if (!l->weights) return fail_memory("gradients", w->count * sizeof *l->weights);
  for (size_t i = 0; i < w->count && !status; i++) {
    const struct tensor *t = w->requests[i].out;
    l->weights[i].weight = t;
    status = is_wanted(l, &w->requests[i], &wanted);
    if (!status && wanted.any) arena_add(&l->gradients, &l->weights[i].gradient, DTYPE_F32, t->rows, t->cols, t->cols);
  }
  if (!status) status = arena_allocate(&l->gradients, l->backend, MEMORY_DEVICE, "the gradients");
  return status ? status : arena_zero(&l->gradients, l->backend);
}

static deltaic_status open_model(struct learner *l, const char *path) {
  l->model.weights.f32 = true;
  deltaic_status status = model_declare(&l->model, l->backend, path, 0);
  if (!status && checkpoint_keys(l->model.checkpoint))
    status = fail(DELTAIC_UNSUPPORTED, "%s: is a GGUF file; give the model's folder instead", path);
  if (!status) status = weights_upload(&l->model.weights, NULL, NULL);
  if (!status && l->model.spec.tied) l->model.head = l->model.embedding;
  return status;
}

static deltaic_status open_device(struct learner *l, struct backend *on, uint32_t threads, bool fast) {
  l->backend = on;
  l->owns_backend = !on;
  deltaic_status status = on ? DELTAIC_OK : backend_open_cpu(threads, &l->backend);
  if (!status) status = l->backend->functions->recorder_create(l->backend, &l->recorder);
  if (status) return status;
  l->walk.c = l->recorder;
  l->walk.functions = walk_functions(l->backend);
  l->fast = fast && l->walk.functions->rounds && l->walk.functions->rounds(l->backend);
  const uint64_t bytes = l->fast ? l->backend->parts_bytes : 0;
  if (bytes) status = learner_room(l, &l->parts, bytes, "sums of tiles");
  if (bytes && !status) status = l->backend->functions->buffer_zero(l->backend, &l->parts, 0, bytes);
  if (bytes) l->list.parts = learner_tensor(&l->parts, 0, 1, (uint32_t)(bytes / sizeof(float)));
  return status;
}

deltaic_status learner_open(const char *path, struct backend *on, uint32_t threads, bool fast, learner_wants wants,
                            void *user, struct learner **out) {
  struct learner *l = calloc(1, sizeof *l);
  *out = NULL;
  if (!l) return fail_memory("a model with gradients", sizeof *l);
  deltaic_status status = open_device(l, on, threads, fast);
  if (!status) status = open_model(l, path);
  if (!status) status = make_gradients(l, wants, user);
  if (!status && (!(l->kept = calloc(l->model.spec.L, sizeof *l->kept)) ||
                  !(l->is_kept = calloc(l->model.spec.L, sizeof *l->is_kept))))
    status = fail_memory("layers", l->model.spec.L * sizeof *l->kept);
  if (!status && !(l->mixer_states = calloc(l->model.spec.L, sizeof *l->mixer_states)))
    status = fail_memory("states", l->model.spec.L * sizeof *l->mixer_states);
  for (uint32_t i = 0; !status && i < l->model.spec.L; i++)
    if (!(l->mixer_states[i] = calloc(1, l->model.spec.layers[i].mixer->state_bytes)))
      status = fail_memory("states", l->model.spec.layers[i].mixer->state_bytes);
  if (status)
    learner_close(l);
  else
    *out = l;
  return status;
}

// Waits for what the device still computes after an error, since its buffers are about to be freed or written.
static void settle(struct learner *l) {
  if (l->recorder) l->backend->functions->recorder_begin(l->recorder, false, NULL);
  l->recording = false;
}

void learner_close(struct learner *l) {
  if (!l) return;
  if (l->backend) {
    settle(l);
    learner_batch_free(l);
    learner_kept_free(l);
    l->backend->functions->buffer_free(l->backend, &l->values);
    l->backend->functions->buffer_free(l->backend, &l->value_gradients);
    l->backend->functions->buffer_free(l->backend, &l->halves);
    l->backend->functions->buffer_free(l->backend, &l->parts);
    arena_free(&l->gradients, l->backend);
    walk_free(&l->walk);
    if (l->recorder) l->backend->functions->recorder_free(l->recorder);
  }
  for (uint32_t i = 0; l->mixer_states && i < l->model.spec.L; i++) free(l->mixer_states[i]);
  free(l->mixer_states);
  free(l->kept);
  free(l->is_kept);
  free(l->weights);
  free(l->half);
  oplist_free(&l->list);
  free(l->host);
  model_clear(&l->model);
  if (l->backend && l->owns_backend) l->backend->functions->close(l->backend);
  free(l);
}

struct checkpoint *learner_checkpoint(const struct learner *l) {
  return l->model.checkpoint;
}

uint64_t learner_fingerprint(const struct learner *l) {
  return hash_word(l->model.weights.fingerprint, l->model.spec.config_hash);
}

bool learner_embeds(const struct learner *l, const struct file_tensor *t) {
  return t == names_find(layer_names(&l->model.spec, 0), l->model.checkpoint, 0, ROLE_EMBEDDING).tensor;
}

uint32_t learner_vocabulary(const struct learner *l) { return l->model.spec.V; }
bool learner_is_fast(const struct learner *l) { return l->fast; }

// ---------------------------------------------------------------- running a list

static void begin(struct learner *l, enum learner_pass pass) {
  l->pass = pass;
  l->list.keep = l->list.plain = pass != PASS_FORWARD;
  l->list.matrices = l->fast ? MATRICES_BEST : MATRICES_NONE;
  l->list.form = DELTA_AUTO;
  l->list.longest = l->T;
  oplist_begin(&l->list);
}

// A buffer becomes 0, by kernels: an H200 fills a buffer at 18 GB/s. In tensors that every device can bind.
static deltaic_status zero(struct learner *l, struct buffer *b) {
  const uint64_t most = 1ull << 26, bytes = b->bytes / sizeof(float) * sizeof(float);
  l->walk.status = DELTAIC_OK;
  learner_record(l);
  for (uint64_t at = 0; at < bytes; at += most) {
    const uint64_t n = bytes - at < most ? bytes - at : most;
    l->walk.functions->clear(&l->walk, learner_tensor(b, at, 1, (uint32_t)(n / sizeof(float))));
  }
  return l->walk.status;
}

// The residual stream before layer i.
static struct tensor stream(struct learner *l, uint32_t i) {
  const uint64_t N = (uint64_t)l->rows * l->T, D = l->model.spec.D;
  return learner_tensor(&l->streams, i * round_up(N * D * sizeof(float), TENSOR_ALIGN), (uint32_t)N, (uint32_t)D);
}

// Clears the gradients of values that nothing reads, except the result's; an operation that reads a value writes the
// others'.
static void clear_gradients(struct learner *l, struct tensor result, struct tensor input) {
  for (uint32_t i = 0; i < l->list.value_count; i++) {
    const struct tensor t = oplist_tensor(&l->list, oplist_whole(&l->list, (struct tensor){.value = i + 1}));
    if (!l->list.values[i].last_read && i + 1 != result.value && i + 1 != input.value)
      l->walk.functions->clear(&l->walk, walk_gradient(&l->walk, t));
  }
}

static void begin_walk(struct learner *l, struct buffer *values) {
  l->walk.list = &l->list;
  l->walk.values = values;
  l->walk.place_count = 0;
  l->walk.gradients = &l->value_gradients;
  l->walk.states = l->states.blocks;
  l->walk.before = &l->unused;
  l->walk.state_gradients = &l->state_gradients;
  l->walk.weights = l->weights;
  l->walk.weight_count = l->weights ? l->model.weights.count : 0;
}

// Places the list's values, which need so many bytes.
static deltaic_status place(struct learner *l, uint64_t *bytes) {
  uint64_t largest = 0;
  deltaic_status status = l->list.status ? l->list.status : learner_halves_choose(l);
  *bytes = status ? 0 : l->backend->functions->list_bytes(l->backend, &l->list, &largest);
  if (!status) status = l->list.status;
  if (!status && (*bytes / sizeof(float) > UINT32_MAX || largest > l->backend->max_binding_bytes))
    status = fail(DELTAIC_OUT_OF_MEMORY, "a layer of %u texts of %u tokens is too large", l->rows, l->T);
  return status;
}

// Records the list, whose values are in this buffer, and names the walk's memory. again: the values are there, so the
// list does not run.
static deltaic_status record(struct learner *l, struct buffer *values, bool again) {
  const struct backend_functions *f = l->backend->functions;
  deltaic_status status = DELTAIC_OK;
  if (l->pass == PASS_WALK)
    status = learner_room(l, &l->value_gradients, values->bytes, "the gradients of a layer's values");
  if (status) return status;
  l->list.scratch = learner_tensor(values, 0, 1, (uint32_t)(values->bytes / sizeof(float)));
  l->walk.status = DELTAIC_OK;
  learner_record(l);
  learner_halves_make(l);
  if (!again) f->recorder_list(l->recorder, &l->list);
  if (l->pass == PASS_WALK) begin_walk(l, values);
  return DELTAIC_OK;
}

// Places and records the list.
static deltaic_status start(struct learner *l) {
  uint64_t bytes;
  deltaic_status status = place(l, &bytes);
  if (!status) status = learner_room(l, &l->values, bytes, "a layer's values");
  return status ? status : record(l, &l->values, false);
}

static struct tensor embed(struct learner *l) {
  const struct tensor x = oplist_value(&l->list, l->rows * l->T, l->model.spec.D);
  oplist_bind(&l->list, x, stream(l, 0));
  struct tensor tokens = learner_tensor(&l->tokens, 0, 1, l->rows * l->T);
  tokens.dtype = DTYPE_I32;
  op_embed(&l->list, x, l->model.embedding, tokens);
  return x;
}

// The stream before layer i as a value of the list: a copy where the layer's sums may overwrite it.
static struct tensor input(struct learner *l, uint32_t i) {
  const struct tensor from = stream(l, i), x = oplist_value(&l->list, from.rows, from.cols);
  if (l->pass == PASS_FORWARD)
    op_copy(&l->list, x, from);
  else
    oplist_bind(&l->list, x, from);
  return x;
}

// Layer i, whose result is the stream behind it.
static struct tensor layer(struct learner *l, uint32_t i, struct tensor x) {
  const struct deltaic_model *m = &l->model;
  const struct tensor sequences = {
      .dtype = DTYPE_I32, .rows = l->rows, .cols = 4, .stride = 4, .buffer = &l->sequences};
  const struct call call = {.l = &l->list, .sequences = sequences, .T = x.rows};
  const struct tensor y =
      block_forward(&m->spec, &m->spec.layers[i], &m->blocks[i], m->mixers[i], l->mixer_states[i], &call, x);
  oplist_bind(&l->list, y, stream(l, i + 1));
  return y;
}

// The stream behind layer i. keep: with the layer's values, if there is room for them.
static deltaic_status layer_forward(struct learner *l, uint32_t i, bool keep) {
  struct buffer *values = NULL;
  deltaic_status status = DELTAIC_OK;
  l->is_kept[i] = false;
  if (keep && l->keep_bytes) {
    uint64_t bytes;
    begin(l, PASS_KEEP);
    layer(l, i, input(l, i));
    status = place(l, &bytes);
    if (!status) status = learner_kept_room(l, i, bytes, &values);
    if (values) status = record(l, values, false);
    l->is_kept[i] = values;
  }
  if (!status && !values) {
    begin(l, PASS_FORWARD);
    layer(l, i, input(l, i));
    status = start(l);
  }
  return status;
}

// The hidden state that the head reads, (rows * T, D), a value of the list. keep: a backward pass follows.
static deltaic_status forward(struct learner *l, const struct learner_batch *batch, bool keep, struct tensor *hidden) {
  const struct model_spec *s = &l->model.spec;
  const struct tensor none = {0};
  deltaic_status status = learner_batch_take(l, batch);
  if (!status) status = zero(l, l->states.blocks);
  if (status) return status;
  begin(l, PASS_FORWARD);
  embed(l);
  status = start(l);
  for (uint32_t i = 0; i < s->L && !status; i++) status = layer_forward(l, i, keep);
  if (status) return status;
  begin(l, PASS_WALK);
  const struct tensor x = input(l, s->L), y = oplist_value(&l->list, x.rows, x.cols);
  op_norm(&l->list, y, x, l->model.norm, none, s->norm_eps);
  status = start(l);
  *hidden = status ? none : oplist_tensor(&l->list, y);
  return status;
}

// ---------------------------------------------------------------- gradients

// Walks the list, whose result is y and whose input is x: the stream's gradient goes in and comes out, in the same
// memory. It may: the last operation that reads x is a sum, whose gradient is there by then, or the only one.
static deltaic_status pass_back(struct learner *l, struct tensor y, struct tensor x) {
  struct walk *w = &l->walk;
  const struct tensor d = stream(l, l->model.spec.L + 1), to = oplist_tensor(&l->list, y);
  if (l->list.count > 1 && l->list.ops[l->list.values[x.value - 1].last_read].kind != OP_ADD)
    return fail(DELTAIC_INTERNAL, "the last operation that reads a layer's input is no sum");
  clear_gradients(l, y, x);
  walk_place(w, oplist_tensor(&l->list, x), d);
  if (to.buffer == &l->streams) walk_place(w, to, d);
  return walk_back(w);
}

static deltaic_status layer_back(struct learner *l, uint32_t i) {
  uint64_t bytes;
  begin(l, PASS_WALK);
  const struct tensor x = input(l, i), y = layer(l, i, x);
  deltaic_status status = place(l, &bytes);
  if (!status && l->is_kept[i])
    status = record(l, &l->kept[i], true);
  else if (!status)
    status = learner_room(l, &l->values, bytes, "a layer's values");
  if (!status && !l->is_kept[i]) status = record(l, &l->values, false);
  return status ? status : pass_back(l, y, x);
}

static deltaic_status all_back(struct learner *l) {
  const struct model_spec *s = &l->model.spec;
  deltaic_status status = zero(l, l->states.blocks);
  if (!status) status = zero(l, &l->state_gradients);
  const struct norm *norm = &l->list.ops[0].norm;
  if (!status) status = pass_back(l, norm->y, norm->x);
  for (uint32_t i = s->L; i-- > 0 && !status;) status = layer_back(l, i);
  if (status) return status;
  begin(l, PASS_WALK);
  const struct tensor embedded = embed(l);
  status = start(l);
  if (!status) status = pass_back(l, embedded, embedded);
  return status ? status : learner_run(l);
}

// Forward, and the loss with scale times the gradient of *hidden.
static deltaic_status find_loss(struct learner *l, const struct learner_batch *batch, const struct distillation *d,
                                double scale, struct learner_loss *loss, struct tensor *hidden) {
  struct tensor taught = {0};
  deltaic_status status = DELTAIC_OK;
  assert(l->weights && (!d || !d->teacher || l->owns_backend || d->teacher->backend == l->backend));
  if (d && d->teacher && d->teacher->model.spec.V != l->model.spec.V)
    return fail(DELTAIC_INVALID_ARGUMENT, "the teacher's vocabulary has %u tokens, the model's %u",
                d->teacher->model.spec.V, l->model.spec.V);
  if (d && d->teacher) status = forward(d->teacher, batch, false, &taught);
  if (d && d->teacher && !status) status = learner_run(d->teacher);
  if (!status) status = forward(l, batch, scale != 0, hidden);
  if (!status) status = learner_head(l, batch, *hidden, taught, d, scale, loss);
  if (status && d && d->teacher) settle(d->teacher);
  if (status) settle(l);
  return status;
}

deltaic_status learner_add(struct learner *l, const struct learner_batch *batch, const struct distillation *d,
                           double scale, struct learner_loss *loss) {
  struct tensor hidden;
  assert(l->weights);
  deltaic_status status = find_loss(l, batch, d, scale, loss, &hidden);
  if (status) return status;
  status = all_back(l);
  if (status) settle(l);
  return status;
}

deltaic_status learner_measure(struct learner *l, const struct learner_batch *batch, const struct distillation *d,
                               struct learner_loss *loss) {
  struct tensor hidden;
  return find_loss(l, batch, d, 0, loss, &hidden);
}

deltaic_status learner_clear(struct learner *l) {
  deltaic_status status = DELTAIC_OK;
  l->unit = 0;
  for (uint64_t i = 0; i < l->gradients.block_count && !status; i++) status = zero(l, &l->gradients.blocks[i]);
  return status ? status : learner_run(l);
}
