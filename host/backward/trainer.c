// trainer: see trainer.h.
#include "trainer.h"

#include "adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct trainer {
  struct learner *learner;
  struct trainer_options o;
  struct trained *items;
  size_t count;
  float *dW; // of the largest matrix that LoRA trains
  uint64_t steps;
  trainer_kind kind; // while the learner opens
  void *user;
};

static bool is_trained(void *user, const struct file_tensor *t) {
  const struct trainer *tr = user;
  return tr->kind(tr->user, t) != TRAIN_NOT;
}

// ---------------------------------------------------------------- opening

static double uniform(uint64_t *state) { // splitmix64
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

static float *numbers(uint64_t n, deltaic_status *status) {
  float *x = *status ? NULL : calloc(n ? n : 1, sizeof *x);
  if (!x && !*status) *status = fail_memory("what is trained", n * sizeof *x);
  return x;
}

static char *name_in_folder(const char *path) { return strdup(path + platform_folder(path)); }

static deltaic_status add_tensor(struct trainer *t, struct file_tensor *from, enum training how) {
  struct trained *x = &t->items[t->count++];
  uint64_t n = 1;
  deltaic_status status = DELTAIC_OK;
  for (int i = 0; i < from->rank; i++) n *= from->shape[i];
  *x = (struct trained){.tensor = from,
                        .name = strdup(from->name),
                        .file = name_in_folder(from->input->name),
                        .at = from->at,
                        .dtype = from->dtype,
                        .lora = how == TRAIN_LORA,
                        .n = n};
  if (!x->name || !x->file) return fail_memory("what is trained", strlen(from->name) + 1);
  x->values = numbers(n, &status);
  if (x->lora) {
    x->rows = from->shape[0];
    x->cols = from->shape[1];
    x->n = t->o.rank * (x->rows + x->cols);
    x->base = numbers(n, &status);
  }
  x->p = x->lora ? numbers(x->n, &status) : x->values;
  x->g = numbers(x->n, &status);
  x->m = numbers(x->n, &status);
  x->v = numbers(x->n, &status);
  if (status) return status;
  file_tensor_f32(from, 0, n, x->values);
  if (!x->lora) return DELTAIC_OK;
  memcpy(x->base, x->values, n * sizeof *x->base);
  uint64_t state = t->o.seed ^ t->count * 0xd1342543de82ef95u;
  for (uint64_t i = 0; i < t->o.rank * x->cols; i++)
    x->p[i] = (float)((2 * uniform(&state) - 1) / sqrt((double)x->cols));
  return DELTAIC_OK;
}

static deltaic_status add_tensors(struct trainer *t, const char *path) {
  struct checkpoint *c = learner_checkpoint(t->learner);
  uint64_t most = 0;
  deltaic_status status = DELTAIC_OK;
  t->items = calloc(checkpoint_count(c), sizeof *t->items);
  if (!t->items) return fail_memory("what is trained", checkpoint_count(c) * sizeof *t->items);
  for (uint64_t i = 0; i < checkpoint_count(c) && !status; i++) {
    struct file_tensor *from = checkpoint_at(c, i);
    const enum training how = t->kind(t->user, from);
    if (how == TRAIN_LORA && from->shape[0] * from->shape[1] > most) most = from->shape[0] * from->shape[1];
    if (how != TRAIN_NOT) status = add_tensor(t, from, how);
  }
  if (!status) t->dW = numbers(most, &status);
  if (!status && !t->count)
    status = fail(DELTAIC_UNSUPPORTED, "%s: has no tensors of the kinds that are trained", path);
  return status;
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
  if (!status) status = trainer_refresh(t);
  if (status)
    trainer_close(t);
  else
    *out = t;
  return status;
}

void trainer_close(struct trainer *t) {
  if (!t) return;
  learner_close(t->learner);
  for (size_t i = 0; i < t->count; i++) {
    struct trained *x = &t->items[i];
    if (x->lora) free(x->p);
    free(x->name);
    free(x->file);
    free(x->values);
    free(x->base);
    free(x->g);
    free(x->m);
    free(x->v);
  }
  free(t->items);
  free(t->dW);
  free(t);
}

void trainer_finish(struct trainer *t) {
  learner_close(t->learner);
  t->learner = NULL;
  for (size_t i = 0; i < t->count; i++) t->items[i].tensor = NULL;
}

struct learner *trainer_learner(struct trainer *t) {
  return t->learner;
}
uint64_t trainer_steps(const struct trainer *t) { return t->steps; }
void trainer_set_steps(struct trainer *t, uint64_t steps) { t->steps = steps; }
size_t trainer_count(const struct trainer *t) { return t->count; }
struct trained *trainer_at(struct trainer *t, size_t i) {
  return &t->items[i];
}

// ---------------------------------------------------------------- LoRA

// y (cols) += factor x (cols)
static void add_scaled(float *restrict y, const float *restrict x, float factor, uint64_t cols) {
  for (uint64_t i = 0; i < cols; i++) y[i] += factor * x[i];
}

// W = W0 + s B A
static void merge(const struct trainer *t, const struct trained *x) {
  const uint64_t rank = t->o.rank;
  const float s = (float)(t->o.alpha / t->o.rank);
  memcpy(x->values, x->base, x->rows * x->cols * sizeof *x->values);
  adapter_add(&(struct adapter_product){x->rows, x->cols, rank, x->p, x->p + rank * x->cols, s}, x->values);
}

// dA = s B^T dW,  dB = s dW A^T
static void split(const struct trainer *t, const struct trained *x) {
  const uint64_t rank = t->o.rank;
  const float *A = x->p, *B = x->p + rank * x->cols, s = (float)(t->o.alpha / t->o.rank);
  float *dA = x->g, *dB = x->g + rank * x->cols;
  memset(dA, 0, rank * x->cols * sizeof *dA);
  for (uint64_t i = 0; i < x->rows; i++) {
    const float *dW = t->dW + i * x->cols;
    for (uint64_t r = 0; r < rank; r++) {
      double dot = 0;
      for (uint64_t k = 0; k < x->cols; k++) dot += (double)dW[k] * A[r * x->cols + k];
      dB[i * rank + r] = (float)(dot * s);
      add_scaled(dA + r * x->cols, dW, s * B[i * rank + r], x->cols);
    }
  }
}

deltaic_status trainer_refresh(struct trainer *t) {
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < t->count && !status; i++) {
    if (t->items[i].lora) merge(t, &t->items[i]);
    status = learner_set(t->learner, t->items[i].tensor, t->items[i].values);
  }
  return status;
}

// ---------------------------------------------------------------- AdamW

static deltaic_status collect(struct trainer *t, double *norm) {
  double squares = 0;
  for (size_t i = 0; i < t->count; i++) {
    struct trained *x = &t->items[i];
    deltaic_status status = learner_gradient(t->learner, x->tensor, x->lora ? t->dW : x->g);
    if (status) return status;
    if (x->lora) split(t, x);
    for (uint64_t k = 0; k < x->n; k++) squares += (double)x->g[k] * x->g[k];
  }
  *norm = sqrt(squares);
  return isfinite(squares) ? DELTAIC_OK : fail(DELTAIC_INVALID_ARGUMENT, "the gradient is not finite");
}

static void update(const struct trainer *t, struct trained *x, double rate, double scale) {
  const struct trainer_options *o = &t->o;
  const double first = 1 - pow(o->beta1, (double)t->steps), second = 1 - pow(o->beta2, (double)t->steps);
  for (uint64_t k = 0; k < x->n; k++) {
    const double g = x->g[k] * scale;
    const double m = o->beta1 * x->m[k] + (1 - o->beta1) * g, v = o->beta2 * x->v[k] + (1 - o->beta2) * g * g;
    x->m[k] = (float)m;
    x->v[k] = (float)v;
    x->p[k] = (float)(x->p[k] * (1 - rate * o->decay) - rate * (m / first) / (sqrt(v / second) + o->eps));
  }
}

deltaic_status trainer_step(struct trainer *t, double rate, double *norm) {
  deltaic_status status = collect(t, norm);
  if (status) return status;
  t->steps++;
  for (size_t i = 0; i < t->count; i++) update(t, &t->items[i], rate, fmin(1, t->o.clip / (*norm + 1e-6)));
  status = trainer_refresh(t);
  return status ? status : learner_clear(t->learner);
}
