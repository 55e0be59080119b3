// gradients: measures the saliency of every channel, the criterion of the method grad. The loss is the sum over the
// text's windows of each window's mean cross entropy; with W the rows of q_proj or k_proj and dW the loss's gradient,
//
//   saliency[j] = sum over i of |W[j,i] dW[j,i]|
//
// The model computes in f32 (host/backward).
#include "device_handle.h"
#include "learner.h"
#include "statistics.h"

#include <math.h>
#include <stdlib.h>

struct gradients {
  struct deltaic_statistics *s;
  struct source source;
  struct learner *learner;
};

static bool is_projection(void *user, const struct file_tensor *t) {
  bool filters;
  return t->rank == 2 && source_cut_layer(user, t->name, &filters) && !filters;
}

static deltaic_status read_windows(struct gradients *g, const int32_t *tokens, uint64_t count,
                                   deltaic_progress progress, void *user) {
  enum { BATCH = 1024 }; // tokens
  const uint32_t window = g->s->window, most = window < BATCH ? BATCH / window : 1;
  deltaic_status status = DELTAIC_OK;
  for (uint64_t at = 0; at + 1 < count && !status;) { // a last token alone predicts nothing
    const uint64_t left = count - at, whole = left / window < most ? left / window : most;
    const struct learner_batch batch = {
        .tokens = tokens + at, .rows = whole ? (uint32_t)whole : 1, .T = (uint32_t)(whole ? window : left) - 1};
    struct learner_loss loss = {0};
    if (progress && !progress(user, at, count)) return fail(DELTAIC_CANCELLED, "the calibration was stopped");
    status = learner_add(g->learner, &batch, NULL, batch.rows, &loss);
    if (!status && !isfinite(loss.ce))
      status = fail(DELTAIC_INVALID_ARGUMENT, "%s: its loss is not finite: numbers overflow", g->source.path);
    at += (uint64_t)batch.rows * (batch.T + 1);
  }
  if (!status && progress) progress(user, count, count);
  return status;
}

// Adds the saliency of rows first ... first + rows - 1 of a tensor, whose gradient is dW.
static deltaic_status add_rows(const struct gradients *g, const struct file_tensor *t, const float *dW, uint64_t first,
                               uint64_t rows, double *saliency) {
  const uint64_t D = g->source.spec.D;
  float *W = malloc(D * sizeof *W);
  if (!W) return fail_memory("a row of weights", D * sizeof *W);
  for (uint64_t j = 0; j < rows; j++) {
    file_tensor_f32(t, (first + j) * D, D, W);
    for (uint64_t i = 0; i < D; i++) saliency[j] += fabs((double)W[i] * dW[(first + j) * D + i]);
  }
  free(W);
  return DELTAIC_OK;
}

static deltaic_status add_tensor(const struct gradients *g, const struct file_tensor *named, uint64_t first,
                                 uint64_t rows, double *saliency) {
  const struct file_tensor *t = checkpoint_find(learner_checkpoint(g->learner), named->name);
  const uint64_t n = t->shape[0] * t->shape[1];
  float *dW = malloc(n * sizeof *dW);
  deltaic_status status = dW ? DELTAIC_OK : fail_memory("a gradient", n * sizeof *dW);
  if (!status) status = learner_gradient(g->learner, t, dW);
  if (!status) status = add_rows(g, t, dW, first, rows, saliency);
  free(dW);
  return status;
}

static deltaic_status measure_layer(const struct gradients *g, int i) {
  const struct source_layer *l = &g->source.layers[i];
  double *const *saliency = g->s->layers[i].saliency;
  const uint64_t rows = (uint64_t)(l->H * l->d);
  deltaic_status status = add_tensor(g, source_queries(&g->source, l), 0, rows, saliency[STAT_Q]);
  for (int m = 0; m < l->steps && !status; m++) {
    uint64_t first;
    const struct file_tensor *t = source_keys(&g->source, l, m, &first);
    status = add_tensor(g, t, first, rows, saliency[STAT_K]);
  }
  return status;
}

static deltaic_status measure(struct gradients *g, deltaic_device *device, const char *path, const int32_t *tokens,
                              uint64_t count, deltaic_progress progress, void *user) {
  struct deltaic_statistics *s = g->s;
  const uint64_t hash = hash_add(HASH_START, tokens, count * sizeof *tokens);
  deltaic_status status = statistics_check(s, &g->source, "the statistics");
  if (status) return status;
  if (s->gradient_tokens == count && s->gradient_hash == hash) return DELTAIC_OK;
  s->gradient_tokens = 0;
  status = learner_open(path, device ? device->backend : NULL, 0, false, is_projection, &g->source, &g->learner);
  if (!status) status = read_windows(g, tokens, count, progress, user);
  if (!status) status = statistics_make_saliency(s);
  for (int i = 0; i < s->count && !status; i++) status = measure_layer(g, i);
  if (status) return status;
  s->gradient_tokens = count;
  s->gradient_hash = hash;
  return DELTAIC_OK;
}

deltaic_status deltaic_calibrate_gradients(deltaic_statistics *s, deltaic_device *device, const char *path,
                                           const int32_t *tokens, size_t count, deltaic_progress progress, void *user) {
  if (!s || !path || (count && !tokens))
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_calibrate_gradients: %s is NULL",
                !s      ? "statistics"
                : !path ? "path"
                        : "tokens");
  if (count < 2)
    return fail(DELTAIC_INVALID_ARGUMENT, "the calibration text has %zu tokens: too few to predict one", count);
  if (s->window < 2) return fail(DELTAIC_INVALID_ARGUMENT, "windows of %u tokens predict nothing", s->window);
  struct gradients g = {.s = s};
  deltaic_status status = source_open(path, &g.source);
  if (!status) status = measure(&g, device, path, tokens, count, progress, user);
  learner_close(g.learner);
  source_close(&g.source);
  return status;
}
