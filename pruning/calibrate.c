// calibrate: runs a model over the tokens of a text and accumulates the statistics that pruning methods need. Each
// window starts from a zero state, and windows run in order. Sums are accumulated in token order, so two runs over the
// two parts of a text give the same bits as one run.
#include "pool.h"
#include "statistics.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define UNIT_EPS 1e-6 // the epsilon of the layers' own normalization

struct calibration {
  struct deltaic_statistics *s;
  struct pool *pool;
  float *unit; // memory for the normalized rows of one head, for every thread
  uint64_t unit_floats;
  deltaic_status status; // the callback's status
  char sentence[256];    // the callback's error message; the evaluation that it stops has its own message
  // The tensor that is being processed:
  const deltaic_probed *probed;
  struct stat_layer *layer;
  _Atomic int failed;
};

static struct stat_layer *find_layer(const struct deltaic_statistics *s, int32_t layer) {
  for (int i = 0; i < s->count; i++)
    if (s->layers[i].layer == (uint32_t)layer) return &s->layers[i];
  return NULL;
}

// Returns x / sqrt(sum x^2 + eps) for each row; the rows of `out` are contiguous.
static struct matrix_rows normalize(struct matrix_rows x, int d, float *out) {
  for (int64_t t = 0; t < x.rows; t++) {
    const float *from = x.data + t * x.stride;
    double sum = UNIT_EPS;
    for (int j = 0; j < d; j++) sum += (double)from[j] * from[j];
    for (int j = 0; j < d; j++) out[t * d + j] = (float)(from[j] / sqrt(sum));
  }
  return (struct matrix_rows){out, x.rows, d};
}

static deltaic_status add_rows(struct calibration *c, struct matrix_rows x, int head, int plain, int unit,
                               float *room) {
  struct stat_layer *l = c->layer;
  size_t d = (size_t)l->d, at = (size_t)head * d * d;
  deltaic_status status = matrix_add_gram(x, l->d, l->gram[plain] + at, NULL);
  if (!status && l->gram[unit])
    status = matrix_add_gram(normalize(x, l->d, room), l->d, l->gram[unit] + at, l->sum[unit] + (size_t)head * d);
  return status;
}

// Stores the rows that the sample selects. `number` is the number of the first row of x.
static void keep_rows(struct calibration *c, struct matrix_rows x, int head, uint64_t number) {
  const struct stat_layer *l = c->layer;
  if (!l->rows) return;
  int64_t count = statistics_rows(c->s, l), low = 0, high = count;
  const int64_t *picks = l->picks + (int64_t)head * count;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (picks[middle] < (int64_t)number)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < count && picks[low] < (int64_t)number + x.rows; low++)
    for (int j = 0; j < l->d; j++)
      l->rows[((int64_t)head * count + low) * l->d + j] = x.data[(picks[low] - (int64_t)number) * x.stride + j];
}

static void add_head(void *context, uint64_t index, uint32_t worker) {
  struct calibration *c = context;
  const deltaic_probed *p = c->probed;
  const struct stat_layer *l = c->layer;
  int head = (int)index, width = l->H * l->d;
  uint64_t token = c->s->done + p->position;
  float *room = c->unit ? c->unit + worker * c->unit_floats : NULL;
  struct matrix_rows x = {p->data + head * l->d, (int64_t)p->rows, (int64_t)p->cols};
  deltaic_status status = add_rows(c, x, head, STAT_Q, STAT_Q_UNIT, room);
  keep_rows(c, x, head, token);
  for (int m = 0; m < l->steps && !status; m++) {
    x.data += width;
    status = add_rows(c, x, head, STAT_K, STAT_K_UNIT, room);
    keep_rows(c, x, head, c->s->total * (uint64_t)(1 + m) + token);
  }
  if (status) atomic_store(&c->failed, (int)status);
}

static deltaic_status make_room(struct calibration *c, const deltaic_probed *p) {
  uint64_t floats = p->rows * (uint64_t)c->layer->d;
  if (!c->s->unit || floats <= c->unit_floats) return DELTAIC_OK;
  free(c->unit);
  c->unit_floats = floats;
  c->unit = malloc(floats * pool_threads(c->pool) * sizeof *c->unit);
  return c->unit ? DELTAIC_OK : fail_memory("normalized activations", floats * sizeof *c->unit);
}

static deltaic_status add_activations(struct calibration *c, const deltaic_probed *p) {
  const struct stat_layer *l = c->layer;
  if ((size_t)(l->H * l->d * (1 + l->steps)) > p->cols || p->heads != l->H || p->key_size != l->d)
    return fail(DELTAIC_INVALID_ARGUMENT, "layer %d has another shape than when the statistics were begun", p->layer);
  deltaic_status status = make_room(c, p);
  if (status) return status;
  c->probed = p;
  atomic_store(&c->failed, DELTAIC_OK);
  pool_run(c->pool, (uint64_t)l->H, add_head, c);
  if (atomic_load(&c->failed))
    return fail((deltaic_status)atomic_load(&c->failed), "layer %d: activations cannot be added up: not all are finite",
                p->layer);
  return DELTAIC_OK;
}

static void add_squares(struct stat_layer *l, const deltaic_probed *p) {
  for (size_t t = 0; t < p->rows; t++)
    for (size_t i = 0; i < p->cols; i++) l->squares[i] += (double)p->data[t * p->cols + i] * p->data[t * p->cols + i];
}

static bool on_probe(void *user, const deltaic_probed *p) {
  struct calibration *c = user;
  c->layer = find_layer(c->s, p->layer);
  if (!c->layer) return true;
  if (p->kind == DELTAIC_PROBE_QKV) c->status = add_activations(c, p);
  if (c->status) snprintf(c->sentence, sizeof c->sentence, "%s", deltaic_last_error());
  if (p->kind == DELTAIC_PROBE_MIXER_INPUT && p->cols == c->s->D) add_squares(c->layer, p);
  return !c->status;
}

static deltaic_status read_windows(struct calibration *c, deltaic_session *session, const int32_t *tokens,
                                   uint64_t count, deltaic_progress progress, void *user) {
  struct deltaic_statistics *s = c->s;
  deltaic_status status = DELTAIC_OK;
  while (s->done < count && !status) {
    uint64_t n = count - s->done < s->window ? count - s->done : s->window;
    if (progress && !progress(user, s->done, count)) return fail(DELTAIC_CANCELLED, "calibration was stopped");
    status = deltaic_session_reset(session);
    if (!status) status = deltaic_session_eval(session, tokens + s->done, n, DELTAIC_LOGITS_NONE, NULL);
    if (c->status) status = fail(c->status, "%s", c->sentence);
    s->broken = status != DELTAIC_OK;
    if (status) break;
    s->hash = hash_add(s->hash, tokens + s->done, n * sizeof *tokens);
    s->done += n;
  }
  if (!status && progress) progress(user, count, count);
  return status;
}

// Whether the statistics were begun with this text, and may go on with it.
static bool begun_with(const struct deltaic_statistics *s, const int32_t *tokens, uint64_t count) {
  return count >= s->done && (!s->total || s->total == count) && (s->done % s->window == 0 || s->done == count) &&
         hash_add(HASH_START, tokens, s->done * sizeof *tokens) == s->hash;
}

bool deltaic_statistics_begun_with(const deltaic_statistics *s, const int32_t *tokens, size_t count) {
  return s && (tokens || !count) && begun_with(s, tokens, count);
}

static deltaic_status check_text(const struct deltaic_statistics *s, const int32_t *tokens, uint64_t count) {
  int most = 2;
  for (int i = 0; i < s->count; i++) most = s->layers[i].d > most ? s->layers[i].d : most;
  if (s->broken) return fail(DELTAIC_BAD_STATE, "these statistics were spoilt by a failure: begin anew");
  if (count < (uint64_t)most)
    return fail(DELTAIC_INVALID_ARGUMENT, "the calibration text has %llu tokens: too few to tell %d channels apart",
                (unsigned long long)count, most);
  if (!begun_with(s, tokens, count))
    return fail(DELTAIC_INVALID_ARGUMENT, "the statistics were begun with another text");
  return DELTAIC_OK;
}

deltaic_status deltaic_calibrate(deltaic_statistics *s, deltaic_model *model, const int32_t *tokens, size_t count,
                                 deltaic_progress progress, void *user) {
  if (!s || !model || (count && !tokens))
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_calibrate: %s is NULL",
                !s       ? "statistics"
                : !model ? "model"
                         : "tokens");
  struct calibration c = {.s = s};
  deltaic_session *session = NULL;
  deltaic_session_options options = DELTAIC_INIT(deltaic_session_options);
  options.precision = DELTAIC_PRECISION_FLOAT32;
  options.context = s->window;
  deltaic_status status = check_text(s, tokens, count);
  if (!status) status = statistics_sample(s, count);
  if (!status) status = pool_create(0, &c.pool);
  if (!status) status = deltaic_session_create(model, &options, &session);
  if (!status) status = deltaic_session_probe(session, DELTAIC_PROBE_QKV | DELTAIC_PROBE_MIXER_INPUT, on_probe, &c);
  matrix_use_one_thread();
  if (!status) status = read_windows(&c, session, tokens, count, progress, user);
  deltaic_session_free(session);
  pool_free(c.pool);
  free(c.unit);
  return status;
}
