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
// The text is read twice: by the unpruned model, and by the pruned one. The residual streams of all tokens are kept,
// and a model advances a layer at a time (advance.h). The first reading gives s and keeps the stream after every mixer
// whose layer is pruned; if these do not fit into the memory, the unpruned model reads the text again, beside the
// pruned one. The new o_proj is applied here, to the kept inputs X / s; the device goes on with the FFN.
#include "advance.h"
#include "option_structs.h"
#include "platform.h"
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
  deltaic_refit_options o;
  const int32_t *tokens;
  uint64_t count, done; // done: layers that tokens have passed in the readings
  deltaic_progress progress;
  void *user;
  deltaic_session *whole, *small; // of the unpruned and the pruned model
  int64_t D;
  float *whole_stream, *small_stream; // (count, D)
  float *kept;                        // (pruned layers, count, D): after the mixers of the unpruned model; or NULL
  float *heads;                       // (count, n): the inputs of o_proj in the pruned model
  double *weight;                     // (count)
  // Of the current layer:
  int32_t layer;
  int64_t n;
  double *G, *B; // (n, n), (n, D) column-major: X^T X, X^T Y
  double *x, *y; // (T, n), (T, D) of one window, row-major
  float *o_proj; // (D, n): the new one, as the checkpoint's format has it
  uint64_t at;   // the window's first token
  bool misshapen;
};

// ---------------------------------------------------------------- windows

typedef deltaic_status (*window_function)(struct refit *r, uint64_t at, uint64_t T);

static bool report(const struct refit *r) {
  return !r->progress || r->progress(r->user, r->done / r->p->source.spec.L, 2 * r->count);
}

// Calls `each` for every window. layers: those of a reading that it completes.
static deltaic_status each_window(struct refit *r, window_function each, uint64_t layers) {
  deltaic_status status = DELTAIC_OK;
  for (uint64_t at = 0, T; at < r->count && !status; at += T) {
    T = r->count - at < r->o.window ? r->count - at : r->o.window;
    status = report(r) ? each(r, at, T) : fail(DELTAIC_CANCELLED, "the refit was stopped");
    r->done += layers * T;
  }
  return status;
}

static float *row_of(const struct refit *r, float *stream, uint64_t at) { return stream + at * (uint64_t)r->D; }

static deltaic_status advance(const struct refit *r, deltaic_session *session, enum layer_half half, float *stream,
                              uint64_t at, uint64_t T) {
  float *x = row_of(r, stream, at);
  return session_advance(session, (uint32_t)r->layer, half, x, x, T);
}

static deltaic_status embed_whole(struct refit *r, uint64_t at, uint64_t T) {
  return session_embed(r->whole, r->tokens + at, T, row_of(r, r->whole_stream, at));
}

static deltaic_status embed_small(struct refit *r, uint64_t at, uint64_t T) {
  return session_embed(r->small, r->tokens + at, T, row_of(r, r->small_stream, at));
}

static bool is_last(const struct refit *r) { return r->layer + 1 == (int32_t)r->p->source.spec.L; }

// The last pruned layer: what the models compute after it is of no use.
static bool is_last_pruned(const struct refit *r) {
  return r->layer == (int32_t)r->p->source.layers[r->p->source.count - 1].layer;
}

// ---------------------------------------------------------------- the first reading: the weights of tokens

// Where the unpruned model's stream after pruned layer i's mixer is kept.
static float *kept_row(const struct refit *r, int i, uint64_t at) {
  return row_of(r, r->kept, (uint64_t)i * r->count + at);
}

// The weights use the residual stream after the last mixer: its norm grows from layer to layer, and a layer's error
// persists until the final norm divides it. The norms before earlier layers are less suitable: in the first layers they
// reflect the size of the embedding.
static deltaic_status weigh(struct refit *r, uint64_t at, uint64_t T) {
  for (uint64_t t = at; t < at + T; t++) {
    const float *x = row_of(r, r->whole_stream, t);
    double squares = 0;
    for (int64_t i = 0; i < r->D; i++) squares += (double)x[i] * x[i];
    r->weight[t] = 1 / sqrt(squares / (double)r->D + r->p->source.spec.norm_eps);
  }
  if (matrix_finite(r->weight + at, (int64_t)T)) return DELTAIC_OK;
  return fail(DELTAIC_INVALID_ARGUMENT, "layer %d: an activation is not finite", r->layer);
}

static deltaic_status read_whole(struct refit *r, uint64_t at, uint64_t T) {
  const int i = source_find(&r->p->source, (uint32_t)r->layer);
  deltaic_status status = advance(r, r->whole, HALF_MIXER, r->whole_stream, at, T);
  if (status) return status;
  if (i >= 0 && r->kept) memcpy(kept_row(r, i, at), row_of(r, r->whole_stream, at), T * (uint64_t)r->D * sizeof(float));
  return is_last(r) ? weigh(r, at, T) : advance(r, r->whole, HALF_FFN, r->whole_stream, at, T);
}

static deltaic_status weigh_tokens(struct refit *r) {
  const int32_t L = (int32_t)r->p->source.spec.L;
  deltaic_status status = matrix_create(1, (int64_t)r->count, "weights of tokens", &r->weight);
  if (!status) status = each_window(r, embed_whole, 0);
  for (r->layer = 0; r->layer < L && !status; r->layer++) status = each_window(r, read_whole, 1);
  return status;
}

// ---------------------------------------------------------------- normal equations

// Keeps the inputs of o_proj. The probe also sees layers that are not refitted.
static bool on_heads(void *user, const deltaic_probed *p) {
  struct refit *r = user;
  if (source_find(&r->p->source, (uint32_t)p->layer) < 0) return true;
  r->misshapen |= (int64_t)p->cols != r->n;
  if (r->misshapen) return false;
  memcpy(r->heads + (r->at + p->position) * p->cols, p->data, p->rows * p->cols * sizeof *r->heads);
  return true;
}

// Sets x and y of a window.
static deltaic_status read_window(struct refit *r, uint64_t at, uint64_t T) {
  const float *full = row_of(r, r->whole_stream, at), *before = row_of(r, r->small_stream, at);
  const float *heads = r->heads + at * (uint64_t)r->n;
  const int64_t n = r->n, D = r->D;
  deltaic_status status = DELTAIC_OK;
  r->at = at;
  if (r->kept)
    full = kept_row(r, source_find(&r->p->source, (uint32_t)r->layer), at);
  else
    status = advance(r, r->whole, HALF_MIXER, r->whole_stream, at, T);
  if (!status) status = session_advance(r->small, (uint32_t)r->layer, HALF_MIXER, before, NULL, T);
  if (r->misshapen) return fail(DELTAIC_BAD_SHAPE, "layer %d has another shape than the checkpoint", r->layer);
  if (status) return status;
  for (int64_t t = 0; t < (int64_t)T; t++) {
    const double s = r->weight[at + (uint64_t)t];
    for (int64_t i = t * n; i < (t + 1) * n; i++) r->x[i] = s * heads[i];
    for (int64_t i = t * D; i < (t + 1) * D; i++) r->y[i] = s * ((double)full[i] - before[i]);
  }
  if (matrix_finite(r->x, (int64_t)T * n) && matrix_finite(r->y, (int64_t)T * D)) return DELTAIC_OK;
  return fail(DELTAIC_INVALID_ARGUMENT, "layer %d: an activation is not finite", r->layer);
}

static deltaic_status add_window(struct refit *r, uint64_t at, uint64_t T) {
  const int n = (int)r->n, D = (int)r->D, rows = (int)T;
  deltaic_status status = read_window(r, at, T);
  if (status) return status;
  cblas_dsyrk(CblasColMajor, CblasUpper, CblasNoTrans, n, rows, 1, r->x, n, 1, r->G, n);
  cblas_dgemm(CblasColMajor, CblasNoTrans, CblasTrans, n, D, rows, 1, r->x, n, r->y, D, 1, r->B, n);
  return r->kept || is_last_pruned(r) ? DELTAIC_OK : advance(r, r->whole, HALF_FFN, r->whole_stream, at, T);
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

// Writes the solution in the checkpoint's format. The checkpoint's row-major (D, n) matrix is the column-major (n, D)
// solution.
static deltaic_status solve_layer(struct refit *r, int i, const struct file_tensor *t) {
  const size_t count = (size_t)r->n * (size_t)r->D;
  double *w0 = NULL, *w = NULL;
  deltaic_status status = matrix_create(r->n, r->D, "a projection", &w0);
  if (!status) status = matrix_create(r->n, r->D, "a projection", &w);
  if (!status) {
    file_tensor_f32(t, 0, count, r->o_proj);
    for (size_t j = 0; j < count; j++) w0[j] = r->o_proj[j];
    status = solve(r, w0, w);
  }
  if (!status) {
    const size_t bytes = tensor_convert(t->dtype, w, count, w0);
    struct file_tensor stored = *t;
    stored.data = w0;
    file_tensor_f32(&stored, 0, count, r->o_proj);
    status = tensor_write_at(r->p->tensors, r->p->o_offsets[i], (const char *)w0, bytes);
  }
  free(w0);
  free(w);
  return status;
}

// ---------------------------------------------------------------- layers

// The pruned model's stream after the new o_proj and the FFN.
static deltaic_status finish_window(struct refit *r, uint64_t at, uint64_t T) {
  const int n = (int)r->n, D = (int)r->D;
  const float *heads = r->heads + at * (uint64_t)r->n;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)T, D, n, 1, heads, n, r->o_proj, n, 1,
              row_of(r, r->small_stream, at), D);
  return advance(r, r->small, HALF_FFN, r->small_stream, at, T);
}

static deltaic_status make_room(struct refit *r) {
  const uint64_t bytes = (uint64_t)r->n * (uint64_t)r->D * sizeof *r->o_proj;
  deltaic_status status = matrix_create(r->n, r->n, "a Gram matrix of outputs", &r->G);
  if (!status) status = matrix_create(r->n, r->D, "products of outputs", &r->B);
  if (!status) status = matrix_create(r->n, r->o.window, "a window's outputs", &r->x);
  if (!status) status = matrix_create(r->D, r->o.window, "a window's residual stream", &r->y);
  if (!status && !(r->o_proj = malloc(bytes))) status = fail_memory("a projection", bytes);
  return status;
}

static void free_room(struct refit *r) {
  free(r->G);
  free(r->B);
  free(r->x);
  free(r->y);
  free(r->o_proj);
  r->G = r->B = r->x = r->y = NULL;
  r->o_proj = NULL;
}

static deltaic_status refit_layer(struct refit *r, int i) {
  const struct source_layer *l = &r->p->source.layers[i];
  const struct file_tensor *t = source_output(&r->p->source, l);
  r->n = (int64_t)l->Hv * l->Dv;
  if (!t || t->rank != 2 || t->shape[0] != (uint64_t)r->D || t->shape[1] != (uint64_t)r->n)
    return fail(DELTAIC_BAD_SHAPE, "layer %d: no o_proj.weight of %lld x %lld", r->layer, (long long)r->D,
                (long long)r->n);
  deltaic_status status = make_room(r);
  if (!status) status = each_window(r, add_window, 1);
  if (!status) status = solve_layer(r, i, t);
  if (!status && !is_last_pruned(r)) status = each_window(r, finish_window, 0);
  free_room(r);
  return status;
}

// A layer that was not pruned.
static deltaic_status pass_both(struct refit *r, uint64_t at, uint64_t T) {
  deltaic_status status = DELTAIC_OK;
  for (int half = HALF_MIXER; half <= HALF_FFN && !status; half++) {
    status = advance(r, r->small, half, r->small_stream, at, T);
    if (!status && !r->kept) status = advance(r, r->whole, half, r->whole_stream, at, T);
  }
  return status;
}

static deltaic_status refit_layers(struct refit *r) {
  const struct source *source = &r->p->source;
  const int32_t end = (int32_t)source->layers[source->count - 1].layer + 1;
  deltaic_status status = each_window(r, embed_small, 0);
  if (!status && !r->kept) status = each_window(r, embed_whole, 0);
  for (r->layer = 0; r->layer < end && !status; r->layer++) {
    const int i = source_find(source, (uint32_t)r->layer);
    status = i < 0 ? each_window(r, pass_both, 1) : refit_layer(r, i);
  }
  return status;
}

// ---------------------------------------------------------------- the call

static float *stream_create(uint64_t floats, deltaic_status *status) {
  float *x = *status ? NULL : malloc(floats * sizeof *x);
  if (!x && !*status) *status = fail_memory("a residual stream", floats * sizeof *x);
  return x;
}

static uint64_t most_outputs(const struct source *source) {
  uint64_t most = 0;
  for (int i = 0; i < source->count; i++) {
    const uint64_t n = (uint64_t)source->layers[i].Hv * (uint64_t)source->layers[i].Dv;
    most = n > most ? n : most;
  }
  return most;
}

static deltaic_status create_streams(struct refit *r) {
  const uint64_t room = r->o.memory ? r->o.memory : platform_free_memory() / 2;
  const uint64_t D = (uint64_t)r->D, n = most_outputs(&r->p->source), layers = (uint64_t)r->p->source.count;
  uint64_t least, all;
  const bool counted =
      size_mul(r->count, (2 * D + n) * sizeof(float), &least) && size_mul(r->count, layers * D * sizeof(float), &all);
  if (!counted || (room && least > room))
    return fail(
        DELTAIC_OUT_OF_MEMORY,
        "the residual streams of %llu tokens take %llu bytes each, more than the %.1f MiB of memory that may be "
        "used: refit on fewer tokens",
        (unsigned long long)r->count, (unsigned long long)((2 * D + n) * sizeof(float)), (double)room / (1u << 20));
  deltaic_status status = DELTAIC_OK;
  r->whole_stream = stream_create(r->count * D, &status);
  r->small_stream = stream_create(r->count * D, &status);
  r->heads = stream_create(r->count * n, &status);
  if (!status && (!room || all <= room - least)) r->kept = malloc(all); // without it the text is read again
  return status;
}

static deltaic_status session_for(const struct refit *r, deltaic_model *model, deltaic_session **out) {
  const struct model_spec *spec = &r->p->source.spec;
  deltaic_session_options o = DELTAIC_INIT(deltaic_session_options);
  deltaic_model_info info;
  deltaic_model_get_info(model, &info);
  if (info.width != (int32_t)spec->D || info.layers != (int32_t)spec->L || info.vocabulary != (int32_t)spec->V)
    return fail(DELTAIC_BAD_SHAPE, "the model to refit to is not the one that was pruned");
  o.precision = DELTAIC_PRECISION_FLOAT32;
  o.context = r->o.window;
  o.batch = r->o.window < 4096 ? r->o.window : 0;
  return deltaic_session_create(model, &o, out);
}

static deltaic_status refit(struct refit *r, deltaic_device *device, deltaic_model *model) {
  deltaic_model *pruned = NULL;
  deltaic_status status = create_streams(r);
  if (!status) status = session_for(r, model, &r->whole);
  if (!status) status = deltaic_model_open(device, r->p->folder, NULL, &pruned);
  if (!status) status = session_for(r, pruned, &r->small);
  if (!status) status = deltaic_session_probe(r->small, DELTAIC_PROBE_HEADS, on_heads, r);
  if (!status) status = weigh_tokens(r);
  if (!status) status = refit_layers(r);
  deltaic_session_free(r->whole);
  deltaic_session_free(r->small);
  deltaic_model_close(pruned);
  free(r->whole_stream);
  free(r->small_stream);
  free(r->kept);
  free(r->heads);
  free(r->weight);
  return status;
}

deltaic_status deltaic_pruning_refit(deltaic_pruning *p, deltaic_device *device, deltaic_model *model,
                                     const int32_t *tokens, size_t count, const deltaic_refit_options *options,
                                     deltaic_progress progress, void *user) {
  if (!p || !device || !model || (count && !tokens))
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_pruning_refit: %s is NULL",
                !p        ? "pruning"
                : !device ? "device"
                : !model  ? "model"
                          : "tokens");
  if (!p->folder) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_pruning_refit: the pruning is committed");
  struct refit r = {
      .p = p, .tokens = tokens, .count = count, .D = p->source.spec.D, .progress = progress, .user = user};
  deltaic_status status = options_read(&r.o, sizeof r.o, options, "deltaic_refit_options");
  if (status) return status;
  if (!r.o.window) r.o.window = 512;
  if (!(r.o.ridge >= 0 && r.o.ridge <= 1e6)) return fail(DELTAIC_INVALID_ARGUMENT, "a ridge of %g", r.o.ridge);
  if (count < 2) return fail(DELTAIC_INVALID_ARGUMENT, "the text to refit on has %zu tokens: too short", count);
  matrix_use_one_thread();
  status = refit(&r, device, model);
  if (!status && progress) progress(user, 2 * (uint64_t)count, 2 * (uint64_t)count);
  return status;
}
