// refit: after pruning, solves for a new o_proj of every pruned layer in closed form.
//
//   s (T)     1 / RMS of the unpruned model's residual stream after its last mixer: the weight of each token
//   X (T, n)  s times the input of o_proj in the pruned model
//   Y (T, D)  s times the unpruned model's residual stream after the mixer, minus the pruned model's before it
//   W = W0 + argmin_V |X V^T - (Y - X W0^T)|^2 + lambda |V|^2
//     = W0 + ((G + lambda I)^-1 (B - G W0^T))^T,   G = X^T X,  B = X^T Y,  lambda = trace(G) / T
//
// Layers are solved in order, so each layer also corrects the errors of earlier layers. G and B are float64.
//
// Both models run each window only up to the current layer. The pruned model is reopened for every layer, from the file
// that contains the new matrices of the earlier layers.
#include "option_structs.h"
#include "product.h"
#include "tensor.h"
#include "tensor_file.h"

#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct refit {
  struct deltaic_pruning *p;
  deltaic_device *device;
  deltaic_model *model; // the unpruned model
  deltaic_refit_options o;
  const int32_t *tokens;
  uint64_t count, done, total;
  deltaic_progress progress;
  void *user;
  double *weight; // (count): weight of each token
  // Of the current layer:
  int32_t layer;
  int64_t n, D;    // columns of X and Y
  double *G, *B;   // (n, n), (n, D) column-major: X^T X, X^T Y
  double *x, *y;   // (T, n), (T, D) of one window, row-major
  uint64_t length; // length of the window
  bool pruned;     // whether the probe runs on the pruned model
  bool reached;    // whether the probe has reached the last activation that it needs
  bool misshapen;
};

// ---------------------------------------------------------------- activations of one window

static void take(double *to, const deltaic_probed *p, double sign) {
  size_t from = p->position * p->cols;
  for (size_t i = 0; i < p->rows * p->cols; i++) to[from + i] += sign * p->data[i];
}

// Adds residual + mixer output of the unpruned model to Y. For the pruned model it subtracts the residual and sets X.
static bool on_probe(void *user, const deltaic_probed *p) {
  struct refit *r = user;
  deltaic_probe_kind last = r->pruned ? DELTAIC_PROBE_HEADS : DELTAIC_PROBE_MIXER_OUTPUT;
  if (p->layer != r->layer) return true;
  r->misshapen |= (int64_t)p->cols != (p->kind == DELTAIC_PROBE_HEADS ? r->n : r->D);
  if (r->misshapen) return false;
  if (p->kind == DELTAIC_PROBE_HEADS)
    take(r->x, p, 1);
  else
    take(r->y, p, r->pruned ? -1 : 1);
  r->reached = p->kind == last && p->position + p->rows == r->length;
  return !r->reached;
}

static deltaic_status run_window(struct refit *r, deltaic_session *session, bool pruned, uint64_t at, uint64_t n) {
  r->pruned = pruned;
  r->length = n;
  r->reached = r->misshapen = false;
  deltaic_status status = deltaic_session_reset(session);
  if (!status) status = deltaic_session_eval(session, r->tokens + at, n, DELTAIC_LOGITS_NONE, NULL);
  if (r->misshapen) return fail(DELTAIC_BAD_SHAPE, "layer %d has another shape than the checkpoint", r->layer);
  return status == DELTAIC_CANCELLED && r->reached ? DELTAIC_OK : status; // the probe stopped the model as intended
}

static deltaic_status add_window(struct refit *r, deltaic_session *full, deltaic_session *small, uint64_t at,
                                 uint64_t T) {
  int n = (int)r->n, D = (int)r->D, rows = (int)T;
  memset(r->x, 0, sizeof *r->x * T * (size_t)n);
  memset(r->y, 0, sizeof *r->y * T * (size_t)D);
  deltaic_status status = run_window(r, full, false, at, T);
  if (!status) status = run_window(r, small, true, at, T);
  if (status) return status;
  if (!matrix_finite(r->x, (int64_t)T * n) || !matrix_finite(r->y, (int64_t)T * D))
    return fail(DELTAIC_INVALID_ARGUMENT, "layer %d: an activation is not finite", r->layer);
  for (int t = 0; t < rows; t++) {
    cblas_dscal(n, r->weight[at + (uint64_t)t], r->x + (size_t)t * (size_t)n, 1);
    cblas_dscal(D, r->weight[at + (uint64_t)t], r->y + (size_t)t * (size_t)D, 1);
  }
  cblas_dsyrk(CblasColMajor, CblasUpper, CblasNoTrans, n, rows, 1, r->x, n, 1, r->G, n);
  cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, n, D, rows, 1, r->x, n, r->y, D, 1, r->B, n);
  return DELTAIC_OK;
}

static deltaic_status session_for(struct refit *r, deltaic_model *model, bool pruned, deltaic_session **out) {
  deltaic_session_options o = DELTAIC_INIT(deltaic_session_options);
  o.precision = DELTAIC_PRECISION_FLOAT32;
  o.context = r->o.window;
  o.batch = r->o.window < 4096 ? r->o.window : 0;
  deltaic_status status = deltaic_session_create(model, &o, out);
  uint32_t last = pruned ? DELTAIC_PROBE_HEADS : DELTAIC_PROBE_MIXER_OUTPUT;
  return status ? status : deltaic_session_probe(*out, DELTAIC_PROBE_RESIDUAL | last, on_probe, r);
}

static deltaic_status weigh_window(struct refit *r, deltaic_session *full, uint64_t at, uint64_t T) {
  memset(r->y, 0, sizeof *r->y * T * (size_t)r->D);
  deltaic_status status = run_window(r, full, false, at, T);
  for (uint64_t t = 0; t < T && !status; t++) {
    double size = cblas_dnrm2((int)r->D, r->y + t * (size_t)r->D, 1);
    r->weight[at + t] = 1 / sqrt(size * size / (double)r->D + r->p->source.spec.norm_eps);
  }
  if (!status && !matrix_finite(r->weight + at, (int64_t)T))
    return fail(DELTAIC_INVALID_ARGUMENT, "layer %d: an activation is not finite", r->layer);
  return status;
}

// Accumulates G and B over the whole text. If pruned is NULL, it computes the tokens' weights instead.
static deltaic_status add_text(struct refit *r, deltaic_model *pruned) {
  deltaic_session *full = NULL, *small = NULL;
  uint32_t window = r->o.window;
  deltaic_status status = session_for(r, r->model, false, &full);
  if (!status && pruned) status = session_for(r, pruned, true, &small);
  for (uint64_t at = 0; at < r->count && !status; at += window) {
    uint64_t n = r->count - at < window ? r->count - at : window;
    if (r->progress && !r->progress(r->user, r->done, r->total))
      status = fail(DELTAIC_CANCELLED, "the refit was stopped");
    if (!status) status = small ? add_window(r, full, small, at, n) : weigh_window(r, full, at, n);
    r->done += n;
  }
  deltaic_session_free(full);
  deltaic_session_free(small);
  return status;
}

// ---------------------------------------------------------------- solver

// The default lambda is the mean squared norm of a row of X, so its influence decreases as the text grows.
static double lambda_of(const struct refit *r, double trace) {
  return r->o.ridge > 0 ? r->o.ridge * trace / (double)r->n : trace / (double)r->count;
}

// w (n, D) column-major receives the solution; w0 is the old matrix in the same layout.
static deltaic_status solve(struct refit *r, const double *w0, double *w) {
  int n = (int)r->n, D = (int)r->D;
  double trace = 0;
  memcpy(w, r->B, sizeof *w * (size_t)n * (size_t)D);
  cblas_dsymm(CblasColMajor, CblasLeft, CblasUpper, n, D, -1, r->G, n, w0, n, 1, w, n);
  for (int i = 0; i < n; i++) trace += r->G[i + (size_t)i * (size_t)n];
  if (!(trace > 0)) { // the mixer's output is zero, so the old matrix is kept
    memcpy(w, w0, sizeof *w * (size_t)n * (size_t)D);
    return DELTAIC_OK;
  }
  for (int i = 0; i < n; i++) r->G[i + (size_t)i * (size_t)n] += lambda_of(r, trace);
  int info = LAPACKE_dposv(LAPACK_COL_MAJOR, 'U', n, D, r->G, n, w, n);
  if (info)
    return fail(DELTAIC_INVALID_ARGUMENT, "layer %d: its outputs are dependent: a larger ridge is needed", r->layer);
  cblas_daxpy(n * D, 1, w0, 1, w, 1);
  return DELTAIC_OK;
}

// The checkpoint's row-major (D, n) matrix is the column-major (n, D) solution.
static deltaic_status solve_layer(struct refit *r, int i, const struct file_tensor *t) {
  size_t count = (size_t)r->n * (size_t)r->D;
  double *w0 = NULL, *w = NULL;
  float *old = malloc(count * sizeof *old);
  deltaic_status status = old ? DELTAIC_OK : fail_memory("a projection", count * sizeof *old);
  if (!status) status = matrix_create(r->n, r->D, "a projection", &w0);
  if (!status) status = matrix_create(r->n, r->D, "a projection", &w);
  if (!status) {
    file_tensor_f32(t, 0, count, old);
    for (size_t j = 0; j < count; j++) w0[j] = old[j];
    status = solve(r, w0, w);
  }
  if (!status) {
    size_t bytes = tensor_convert(t->dtype, w, count, w0);
    status = tensor_write_at(r->p->tensors, r->p->o_offsets[i], (const char *)w0, bytes);
  }
  free(old);
  free(w0);
  free(w);
  return status;
}

// ---------------------------------------------------------------- layers

static deltaic_status make_room(struct refit *r) {
  deltaic_status status = matrix_create(r->n, r->n, "a Gram matrix of outputs", &r->G);
  if (!status) status = matrix_create(r->n, r->D, "products of outputs", &r->B);
  if (!status) status = matrix_create(r->n, r->o.window, "a window's outputs", &r->x);
  if (!status) status = matrix_create(r->D, r->o.window, "a window's residual stream", &r->y);
  return status;
}

static void free_room(struct refit *r) {
  free(r->G);
  free(r->B);
  free(r->x);
  free(r->y);
  r->G = r->B = r->x = r->y = NULL;
}

static deltaic_status refit_layer(struct refit *r, int i) {
  const struct source_layer *l = &r->p->source.layers[i];
  const struct file_tensor *t = source_output(&r->p->source, l);
  deltaic_model *pruned = NULL;
  r->layer = (int32_t)l->layer;
  r->n = (int64_t)l->Hv * l->Dv;
  r->D = r->p->source.spec.D;
  if (!t || t->rank != 2 || t->shape[0] != (uint64_t)r->D || t->shape[1] != (uint64_t)r->n)
    return fail(DELTAIC_BAD_SHAPE, "layer %d: no o_proj.weight of %lld x %lld", r->layer, (long long)r->D,
                (long long)r->n);
  deltaic_status status = make_room(r);
  if (!status) status = deltaic_model_open(r->device, r->p->folder, NULL, &pruned);
  if (!status) status = add_text(r, pruned);
  deltaic_model_close(pruned);
  if (!status) status = solve_layer(r, i, t);
  free_room(r);
  return status;
}

// The weights use the residual stream after the last mixer: its norm grows from layer to layer, and a layer's error
// persists until the final norm divides it. The norms before earlier layers are less suitable: in the first layers they
// reflect the size of the embedding.
static deltaic_status weigh_tokens(struct refit *r) {
  r->layer = (int32_t)r->p->source.spec.L - 1;
  r->D = r->p->source.spec.D;
  deltaic_status status = matrix_create(1, (int64_t)r->count, "weights of tokens", &r->weight);
  if (!status) status = matrix_create(r->D, r->o.window, "a window's residual stream", &r->y);
  if (!status) status = add_text(r, NULL);
  free_room(r);
  return status;
}

deltaic_status deltaic_pruning_refit(deltaic_pruning *p, deltaic_device *device, deltaic_model *model,
                                     const int32_t *tokens, size_t count, const deltaic_refit_options *options,
                                     deltaic_progress progress, void *user) {
  if (!p || !p->folder || !device || !model || (count && !tokens))
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_pruning_refit: pruning, device, model and tokens are required");
  struct refit r = {.p = p,
                    .device = device,
                    .model = model,
                    .tokens = tokens,
                    .count = count,
                    .total = count * (1 + (uint64_t)p->source.count),
                    .progress = progress,
                    .user = user};
  deltaic_status status = options_read(&r.o, sizeof r.o, options, "deltaic_refit_options");
  if (status) return status;
  if (!r.o.window) r.o.window = 512;
  if (!(r.o.ridge >= 0 && r.o.ridge <= 1e6)) return fail(DELTAIC_INVALID_ARGUMENT, "a ridge of %g", r.o.ridge);
  if (count < 2) return fail(DELTAIC_INVALID_ARGUMENT, "the text to refit on has %zu tokens: too short", count);
  matrix_use_one_thread();
  status = weigh_tokens(&r);
  for (int i = 0; i < p->source.count && !status; i++) status = refit_layer(&r, i);
  free(r.weight);
  if (!status && progress) progress(user, r.total, r.total);
  return status;
}
