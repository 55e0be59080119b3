// trainer: see trainer.h.
#include "adapter.h"
#include "learner_memory.h"
#include "trainer_lora.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct trainer {
  struct learner *learner;
  struct trainer_options o;
  struct item *items;
  size_t count;
  struct arena arena; // of items
  struct buffer sums; // of squares: two parts each
  uint64_t sum_count;
  uint64_t steps;
  deltaic_status spoiled; // by an update that failed on the way
  trainer_kind kind;      // while the learner opens
  void *user;
};

static bool is_trained(void *user, const struct file_tensor *t) {
  const struct trainer *tr = user;
  return tr->kind(tr->user, t) != TRAIN_NOT;
}

// ---------------------------------------------------------------- opening

static deltaic_status add_tensor(struct trainer *t, struct file_tensor *from, enum training how) {
  struct item *x = &t->items[t->count++];
  x->values_count = 1;
  for (int i = 0; i < from->rank; i++) x->values_count *= from->shape[i];
  x->x = (struct trained){.tensor = from,
                          .name = strdup(from->name),
                          .file = strdup(from->input->name + platform_folder(from->input->name)),
                          .at = from->at,
                          .dtype = from->dtype,
                          .lora = how == TRAIN_LORA,
                          .n = x->values_count};
  if (!x->x.name || !x->x.file) return fail_memory("what is trained", strlen(from->name) + 1);
  if (x->x.lora) {
    x->x.rows = from->shape[0];
    x->x.cols = from->shape[1];
    x->x.n = t->o.rank * (x->x.rows + x->x.cols);
  }
  return item_declare(x, t->learner, &t->arena, t->o.rank);
}

static void count_sums(void *user, const struct strip *s) {
  struct trainer *t = user;
  t->sum_count += walk_square_sums((uint64_t)s->rows * s->cols);
}

static deltaic_status update(struct trainer *t, double rate, double scale);

static deltaic_status make_memory(struct trainer *t) {
  struct backend *b = learner_backend(t->learner);
  deltaic_status status = arena_allocate(&t->arena, b, MEMORY_DEVICE, "what is trained");
  if (!status) status = arena_zero(&t->arena, b);
  for (size_t i = 0; i < t->count && !status; i++) {
    status = item_begin(&t->items[i], t->learner, t->o.seed ^ (i + 1) * 0xd1342543de82ef95u);
    if (!status) item_strips(&t->items[i], count_sums, t);
  }
  if (status) return status;
  status = b->functions->buffer_create(b, MEMORY_DEVICE, 2 * t->sum_count * sizeof(float), "sums of squares", &t->sums);
  // Nothing changes, as B, moments, gradients and rate are 0. But all kernels are compiled: a step that stopped at one
  // of them could not be undone.
  return status ? status : update(t, 0, 0);
}

static deltaic_status add_tensors(struct trainer *t, const char *path) {
  struct checkpoint *c = learner_checkpoint(t->learner);
  deltaic_status status = DELTAIC_OK;
  t->items = calloc(checkpoint_count(c), sizeof *t->items);
  if (!t->items) return fail_memory("what is trained", checkpoint_count(c) * sizeof *t->items);
  for (uint64_t i = 0; i < checkpoint_count(c) && !status; i++) {
    struct file_tensor *from = checkpoint_at(c, i);
    const enum training how = t->kind(t->user, from);
    if (how != TRAIN_NOT) status = add_tensor(t, from, how);
  }
  if (!status && !t->count) return fail(DELTAIC_UNSUPPORTED, "%s: has no tensors of the kinds that are trained", path);
  return status ? status : make_memory(t);
}

deltaic_status trainer_open(const char *path, struct backend *on, uint32_t threads, trainer_kind kind, void *user,
                            const struct trainer_options *options, struct trainer **out) {
  struct trainer *t = calloc(1, sizeof *t);
  *out = NULL;
  if (!t) return fail_memory("a trainer", sizeof *t);
  t->o = *options;
  t->kind = kind;
  t->user = user;
  deltaic_status status = learner_open(path, on, threads, options->fast, is_trained, t, &t->learner);
  if (!status) status = add_tensors(t, path);
  if (status)
    trainer_close(t);
  else
    *out = t;
  return status;
}

static void close_learner(struct trainer *t) {
  if (!t->learner) return;
  struct backend *b = learner_backend(t->learner);
  arena_free(&t->arena, b);
  b->functions->buffer_free(b, &t->sums);
  learner_close(t->learner);
  t->learner = NULL;
  for (size_t i = 0; i < t->count; i++) t->items[i].x.tensor = NULL;
}

void trainer_close(struct trainer *t) {
  if (!t) return;
  close_learner(t);
  for (size_t i = 0; i < t->count; i++) item_free(&t->items[i]);
  free(t->items);
  free(t);
}

deltaic_status trainer_finish(struct trainer *t) {
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < t->count && !status; i++) {
    struct item *x = &t->items[i];
    float *values = malloc(x->values_count * sizeof *values);
    status = values ? trainer_values(t, i, values) : fail_memory("what is trained", x->values_count * sizeof *values);
    free(x->values);
    x->values = values;
  }
  close_learner(t);
  return status;
}

struct learner *trainer_learner(struct trainer *t) {
  return t->learner;
}
uint64_t trainer_steps(const struct trainer *t) { return t->steps; }
void trainer_set_steps(struct trainer *t, uint64_t steps) { t->steps = steps; }
size_t trainer_count(const struct trainer *t) { return t->count; }
const struct trained *trainer_at(const struct trainer *t, size_t i) { return &t->items[i].x; }

struct trainer_memory trainer_memory(const struct trainer *t) {
  struct trainer_memory m = {.adapters = t->sums.bytes};
  for (uint64_t i = 0; i < t->arena.block_count; i++) m.adapters += t->arena.blocks[i].bytes;
  for (size_t i = 0; i < t->count; i++) m.moments += 2 * t->items[i].x.n * sizeof(float);
  m.adapters -= m.moments;
  return m;
}

// ---------------------------------------------------------------- what the host reads and writes

static deltaic_status check(const struct trainer *t) {
  if (!t->spoiled) return DELTAIC_OK;
  return fail(t->spoiled, "the model was left half updated by what failed before: go on from a saved state");
}

// Keeps the failure of what changes numbers in several parts.
static deltaic_status keep(struct trainer *t, deltaic_status status) {
  if (!t->spoiled) t->spoiled = status;
  return status;
}

deltaic_status trainer_read(struct trainer *t, size_t i, enum trained_array which, float *out) {
  const deltaic_status status = check(t);
  return status ? status : item_read(&t->items[i], t->learner, which, out);
}

deltaic_status trainer_write(struct trainer *t, size_t i, enum trained_array which, const float *in) {
  const deltaic_status status = check(t);
  return status ? status : keep(t, item_write(&t->items[i], t->learner, which, in));
}

static float scale_of(const struct trainer *t) { return (float)(t->o.alpha / t->o.rank); }

deltaic_status trainer_values(struct trainer *t, size_t i, float *out) {
  const struct item *x = &t->items[i];
  const uint64_t n = x->values_count, rank = t->o.rank;
  if (!t->learner) {
    memcpy(out, x->values, n * sizeof *out);
    return DELTAIC_OK;
  }
  if (!x->x.lora) return trainer_read(t, i, TRAINED_P, out);
  float *p = malloc(x->x.n * sizeof *p);
  deltaic_status status = p ? trainer_read(t, i, TRAINED_P, p) : fail_memory("adapters", x->x.n * sizeof *p);
  if (!status) {
    if (x->start)
      memcpy(out, x->start, n * sizeof *out);
    else
      file_tensor_f32(x->x.tensor, 0, n, out);
    adapter_add(&(struct adapter_product){x->x.rows, x->x.cols, rank, p, p + rank * x->x.cols, scale_of(t)}, out);
  }
  free(p);
  return status;
}

// ---------------------------------------------------------------- passing on

// Weights that are p + plus.
static void pass_own(const struct item *x, struct walk *w) {
  for (size_t i = 0; i < x->count && x->p.buffer && !x->passes; i++) {
    const struct learner_place *p = &x->places[i];
    const struct walk_grid own = grid_at(x->p, p->first, p->cols);
    w->functions->blend(w, &(struct walk_blend){p->rows, p->cols, p->weight, own, {0}, 0, p->plus});
  }
}

static void record_weights(struct trainer *t, struct walk *w) {
  for (size_t i = 0; i < t->count && !w->status; i++) {
    if (t->items[i].x.lora) lora_merge(w, &t->items[i], scale_of(t));
    pass_own(&t->items[i], w);
  }
}

static deltaic_status pass_through_host(struct trainer *t) {
  struct backend *b = learner_backend(t->learner);
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < t->count && !status; i++) {
    const struct item *x = &t->items[i];
    const struct tensor from = x->x.lora ? x->weight : x->p;
    if (!x->passes) continue;
    status = b->functions->buffer_read(b, from.buffer, from.offset, x->values, x->values_count * sizeof *x->values);
    if (!status) status = learner_set(t->learner, x->x.tensor, x->values);
  }
  return status;
}

deltaic_status trainer_refresh(struct trainer *t) {
  deltaic_status status = check(t);
  if (status) return status;
  record_weights(t, learner_begin(t->learner));
  status = learner_end(t->learner);
  return keep(t, status ? status : pass_through_host(t));
}

// ---------------------------------------------------------------- a step

// On the device gradients are so many times g.
static double factor_of(const struct trainer *t, const struct item *x) {
  const double unit = x->passes ? 1 : 1 / learner_unit(t->learner);
  return x->x.lora ? unit * (double)scale_of(t) : unit;
}

struct squares {
  struct walk *w;
  struct tensor sums;
  double factor;
  uint32_t next;
};

static void add_squares(void *user, const struct strip *s) {
  struct squares *q = user;
  q->w->functions->squares(q->w, q->sums, &(struct walk_squares){s->rows, s->cols, s->g, q->factor, q->next});
  q->next += (uint32_t)walk_square_sums((uint64_t)s->rows * s->cols);
}

static deltaic_status fetch_gradients(struct trainer *t) {
  struct backend *b = learner_backend(t->learner);
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < t->count && !status; i++) {
    const struct item *x = &t->items[i];
    if (!x->passes) continue;
    float *g = malloc(x->values_count * sizeof *g);
    status = g ? learner_gradient(t->learner, x->x.tensor, g) : fail_memory("a gradient", x->values_count * sizeof *g);
    if (!status)
      status = b->functions->buffer_write(b, x->gradient.buffer, x->gradient.offset, g, x->values_count * sizeof *g);
    free(g);
  }
  return status;
}

static deltaic_status add_squares_up(struct trainer *t, double *squares) {
  const uint64_t n = 2 * t->sum_count;
  float *sums = malloc(n * sizeof *sums);
  if (!sums) return fail_memory("sums of squares", n * sizeof *sums);
  struct backend *b = learner_backend(t->learner);
  const deltaic_status status = b->functions->buffer_read(b, &t->sums, 0, sums, n * sizeof *sums);
  for (uint64_t i = 0; i < n && !status; i++) *squares += sums[i];
  free(sums);
  return status;
}

static deltaic_status find_norm(struct trainer *t, double *norm) {
  deltaic_status status = fetch_gradients(t);
  if (status) return status;
  struct squares q = {
      .w = learner_begin(t->learner),
      .sums = {.dtype = DTYPE_F32, .rows = (uint32_t)t->sum_count, .cols = 2, .stride = 2, .buffer = &t->sums}};
  for (size_t i = 0; i < t->count && !q.w->status; i++) {
    if (t->items[i].x.lora) lora_split(q.w, &t->items[i]);
    q.factor = factor_of(t, &t->items[i]);
    item_strips(&t->items[i], add_squares, &q);
  }
  status = learner_end(t->learner);
  double squares = 0;
  if (!status) status = add_squares_up(t, &squares);
  if (status) return status;
  *norm = sqrt(squares);
  return isfinite(squares) ? DELTAIC_OK : fail(DELTAIC_INVALID_ARGUMENT, "the gradient is not finite");
}

struct update {
  struct walk *w;
  struct walk_adamw a;
};

static void update_strip(void *user, const struct strip *s) {
  struct update *u = user;
  u->a.rows = s->rows;
  u->a.cols = s->cols;
  u->a.p = s->p;
  u->a.g = s->g;
  u->a.m = s->m;
  u->a.v = s->v;
  u->w->functions->adamw(u->w, &u->a);
}

static deltaic_status update(struct trainer *t, double rate, double scale) {
  const struct trainer_options *o = &t->o;
  const double steps = (double)t->steps + 1;
  struct update u = {learner_begin(t->learner), {.beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps}};
  u.a.decay = rate * o->decay;
  u.a.rate = rate / (1 - pow(o->beta1, steps));
  u.a.second = 1 / sqrt(1 - pow(o->beta2, steps));
  for (size_t i = 0; i < t->count && !u.w->status; i++) {
    u.a.factor = factor_of(t, &t->items[i]) * scale;
    item_strips(&t->items[i], update_strip, &u);
  }
  record_weights(t, u.w);
  return learner_end(t->learner);
}

deltaic_status trainer_norm(struct trainer *t, double *norm) {
  const deltaic_status status = check(t);
  return status ? status : find_norm(t, norm);
}

deltaic_status trainer_step(struct trainer *t, double rate, double *norm) {
  const deltaic_status status = trainer_norm(t, norm);
  return status ? status : trainer_update(t, rate, *norm);
}

deltaic_status trainer_update(struct trainer *t, double rate, double norm) {
  deltaic_status status = check(t);
  if (status) return status;
  status = update(t, rate, fmin(1, t->o.clip / (norm + 1e-6)));
  if (!status) status = pass_through_host(t);
  if (!status) status = learner_clear(t->learner);
  if (!status) t->steps++;
  return keep(t, status);
}
