// validate_run: runs the reference's tokens and measures the distances from its tensors.
#include "common.h"
#include "likelihood.h"
#include "validate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- distances

static void distance_add(struct distance *d, const float *ours, const float *reference, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    double a = ours[i], b = reference[i], difference = fabs(a - b);
    d->error += difference * difference;
    d->size += b * b;
    d->ours += a * a;
    d->dot += a * b;
    if (!(difference <= d->largest)) d->largest = difference; // NaN stays
  }
  d->count += count;
}

static void distance_join(struct distance *d, const struct distance *other) {
  d->error += other->error;
  d->size += other->size;
  d->ours += other->ours;
  d->dot += other->dot;
  d->count += other->count;
  if (!(other->largest <= d->largest)) d->largest = other->largest;
}

double distance_relative(const struct distance *d) {
  if (!d->count || d->error == 0) return d->count ? 0 : NAN;
  return sqrt(d->error / d->size);
}

double distance_cosine(const struct distance *d) { return d->dot / sqrt(d->size * d->ours); }

static void distances_add(struct distances *d, int32_t layer, size_t position, const float *ours,
                          const float *reference, size_t count) {
  struct distance here = {0};
  distance_add(&here, ours, reference, count);
  distance_join(&d->all, &here);
  distance_join(&d->positions[position], &here);
  if (layer >= 0) distance_join(&d->layers[layer], &here);
}

// ---------------------------------------------------------------- tensors of one run

struct run {
  struct validation *v;
  uint32_t piece;
  float *reference, *truth; // room for one slice
  size_t room;
  int code; // of the probe, which cannot return one
};

static void reserve(struct run *r, size_t count) {
  if (count <= r->room) return;
  r->reference = must_resize(r->reference, count * sizeof *r->reference);
  r->truth = must_resize(r->truth, count * sizeof *r->truth);
  r->room = count;
}

// The part of a source's tensor that a slice of a layer must equal; false when the source does not have the layer.
static bool read_slice(struct run *r, const struct source *source, const char *kind, const deltaic_probed *p,
                       float *out) {
  const struct validation *v = r->v;
  struct tensor_name name = tensor_of(source, kind), layer = name;
  size_t length = strlen(name.text), count = p->rows * p->cols;
  bool state = p->kind == DELTAIC_PROBE_STATE;
  uint64_t all = state ? count : v->n * p->cols, first = state ? 0 : p->position * p->cols;
  deltaic_tensor_info info;
  snprintf(layer.text + length, sizeof layer.text - length, ".%d", p->layer);
  if (deltaic_tensors_find(v->tensors, layer.text, &info)) {
    name = layer;
  } else if (deltaic_tensors_find(v->tensors, name.text, &info)) {
    first += (uint64_t)p->layer * all;
    all *= (uint64_t)v->layers;
  } else {
    return false;
  }
  if (info.count == all) {
    r->code = complain_status(deltaic_tensors_read(v->tensors, name.text, first, count, out));
    return !r->code;
  }
  r->code = complain(EXIT_FAILED, "%s: %s has %llu numbers, the model's has %llu", v->file, name.text,
                     (unsigned long long)info.count, (unsigned long long)all);
  return false;
}

static void compare_slice(struct run *r, struct comparison *c, const deltaic_probed *p) {
  reserve(r, p->rows * p->cols);
  if (!read_slice(r, c->source, c->kind, p, r->reference)) return;
  bool theirs = c->truth && read_slice(r, c->truth, c->kind, p, r->truth);
  bool state = p->kind == DELTAIC_PROBE_STATE;
  size_t rows = state ? 1 : p->rows, cols = state ? p->rows * p->cols : p->cols;
  for (size_t i = 0; i < rows; ++i) {
    size_t at = i * cols, position = (size_t)p->position + i;
    distances_add(&c->ours, p->layer, position, p->data + at, r->reference + at, cols);
    if (theirs) distances_add(&c->theirs, p->layer, position, r->reference + at, r->truth + at, cols);
  }
}

static bool on_probe(void *user, const deltaic_probed *p) {
  struct run *r = user;
  if (p->kind == DELTAIC_PROBE_STATE && p->position + 1 != r->v->n) return true;
  for (size_t i = 0; i < r->v->count && !r->code; ++i) {
    struct comparison *c = &r->v->comparisons[i];
    if (c->piece == r->piece && c->probe == (uint32_t)p->kind) compare_slice(r, c, p);
  }
  return !r->code && !interrupted();
}

static void compare_row(struct run *r, struct comparison *c, size_t row, const float *logits) {
  size_t V = (size_t)r->v->vocabulary;
  uint64_t first = (uint64_t)row * V;
  const char *kind = "logits";
  reserve(r, V);
  r->code =
      complain_status(deltaic_tensors_read(r->v->tensors, tensor_of(c->source, kind).text, first, V, r->reference));
  if (!r->code && c->truth)
    r->code = complain_status(deltaic_tensors_read(r->v->tensors, tensor_of(c->truth, kind).text, first, V, r->truth));
  if (r->code) return;
  size_t position = (size_t)r->v->positions[row];
  distances_add(&c->ours, -1, position, logits, r->reference, V);
  if (c->truth) distances_add(&c->theirs, -1, position, r->reference, r->truth, V);
}

// Compares the logits of tokens [at, at + n).
static void compare_logits(struct run *r, size_t at, size_t n, const float *logits) {
  for (size_t i = 0; i < r->v->count; ++i) {
    struct comparison *c = &r->v->comparisons[i];
    if (c->piece != r->piece || c->probe) continue;
    for (size_t row = 0; row < r->v->rows && !r->code; ++row) {
      size_t position = (size_t)r->v->positions[row];
      if (position >= at && position < at + n)
        compare_row(r, c, row, logits + (position - at) * (size_t)r->v->vocabulary);
    }
  }
}

static int run_piece(struct run *r, const struct engine_options *options, struct progress *progress) {
  struct validation *v = r->v;
  uint32_t probes = 0;
  deltaic_session *session;
  size_t slice = options->batch ? options->batch : 512, piece = r->piece && r->piece < slice ? r->piece : slice;
  for (size_t i = 0; i < v->count; ++i) probes |= v->comparisons[i].probe;
  int code = session_create(&v->engine, options, &session);
  if (code) return code;
  float *logits = must_resize(NULL, piece * (size_t)v->vocabulary * sizeof *logits);
  deltaic_status status = deltaic_session_probe(session, probes, probes ? on_probe : NULL, probes ? r : NULL);
  interrupt_watch(session);
  for (size_t at = 0; at < v->n && !status && !r->code; at += piece) {
    size_t n = v->n - at < piece ? v->n - at : piece;
    status = deltaic_session_eval(session, v->ids + at, n, DELTAIC_LOGITS_ALL, logits);
    if (!status) compare_logits(r, at, n, logits);
    progress_show(progress, at + n, v->n);
  }
  interrupt_watch(NULL);
  progress_clear();
  deltaic_session_free(session);
  free(logits);
  return r->code ? r->code : complain_work(status);
}

int run_tensors(struct validation *v, const struct engine_options *options) {
  struct progress progress;
  int code = EXIT_OK;
  // The pieces are those of the first source's first tensor; every tensor has the same ones.
  for (size_t i = 0; i < v->count && !code; ++i) {
    const struct comparison *c = &v->comparisons[i];
    if (c->source != v->comparisons[0].source || c->kind != v->comparisons[0].kind) break;
    struct run r = {.v = v, .piece = c->piece};
    progress_begin(&progress, "comparing", "tokens", options->quiet);
    code = run_piece(&r, options, &progress);
    free(r.reference);
    free(r.truth);
  }
  return code;
}

// ---------------------------------------------------------------- greedy choices

static int32_t likeliest(const float *logits, int32_t vocabulary) {
  int32_t best = 0;
  for (int32_t i = 1; i < vocabulary; ++i)
    if (logits[i] > logits[best]) best = i;
  return best;
}

static void judge_choice(struct greedy *g, size_t i, int32_t expected, int32_t got, double margin) {
  ++g->count;
  if (got == expected)
    ++g->equal;
  else if (margin <= g->limit)
    ++g->close;
  else if (!g->wrong++)
    g->first_wrong = i, g->expected = expected, g->got = got, g->margin = margin;
}

static deltaic_status choose(struct validation *v, deltaic_session *session, const int32_t *prompt, size_t n,
                             const int32_t *tokens, size_t count, const float *margins) {
  float *logits = must_resize(NULL, (size_t)v->vocabulary * sizeof *logits);
  deltaic_status status = deltaic_session_eval(session, prompt, n, DELTAIC_LOGITS_LAST, logits);
  for (size_t i = 0; i < count && !status; ++i) {
    judge_choice(&v->greedy, i, tokens[i], likeliest(logits, v->vocabulary), margins[i]);
    if (i + 1 < count) status = deltaic_session_eval(session, tokens + i, 1, DELTAIC_LOGITS_LAST, logits);
  }
  free(logits);
  return status;
}

// Every step receives the reference's token, so that one close decision does not affect the rest.
int run_greedy(struct validation *v, const struct engine_options *options) {
  int32_t *prompt = NULL, *tokens = NULL;
  size_t n = 0, count = 0;
  deltaic_session *session = NULL;
  if (!deltaic_tensors_find(v->tensors, "greedy.tokens", NULL)) return EXIT_OK;
  v->greedy.limit = limits_of(v, &v->sources[0])->margin;
  int code = read_integers(v, "greedy.prompt", &prompt, &n);
  if (!code) code = read_integers(v, "greedy.tokens", &tokens, &count);
  float *margins = must_resize(NULL, count * sizeof *margins);
  if (!code) code = complain_status(deltaic_tensors_read(v->tensors, "greedy.margin", 0, count, margins));
  if (!code) code = session_create(&v->engine, options, &session);
  interrupt_watch(session);
  if (!code) code = complain_work(choose(v, session, prompt, n, tokens, count, margins));
  interrupt_watch(NULL);
  deltaic_session_free(session);
  free(prompt);
  free(tokens);
  free(margins);
  return code;
}

// ---------------------------------------------------------------- likelihood

static void read_nlls(struct validation *v) {
  for (size_t i = 0; i < v->source_count; ++i) {
    const char *text = deltaic_tensors_metadata(v->tensors, "nll");
    char key[2 * NAME_CAPACITY];
    snprintf(key, sizeof key, "%s_nll", v->sources[i].name);
    if (*v->sources[i].name) text = deltaic_tensors_metadata(v->tensors, key);
    v->nll.reference[i] = text ? strtod(text, NULL) : NAN;
    v->nll.there |= text != NULL;
  }
}

int run_nll(struct validation *v, const struct engine_options *options) {
  deltaic_tensor_info info;
  deltaic_session *session = NULL;
  int32_t *tokens = NULL;
  size_t count;
  struct likelihood l;
  read_nlls(v);
  v->nll.there &= deltaic_tensors_find(v->tensors, "eval_tokens", &info) && info.rank == 2 && info.shape[0];
  v->nll.there &= v->nll.there && info.shape[1] > 1;
  if (!v->nll.there) return EXIT_OK;
  size_t windows = (size_t)info.shape[0], n = (size_t)info.shape[1];
  likelihood_begin(&l, options->batch);
  int code = read_integers(v, "eval_tokens", &tokens, &count);
  for (size_t i = 0; i < count && !code; ++i)
    if (tokens[i] < 0 || tokens[i] >= v->vocabulary)
      code = complain(EXIT_FAILED, "%s: eval_tokens holds %d, outside of the vocabulary", v->file, tokens[i]);
  if (!code) code = session_create(&v->engine, options, &session);
  interrupt_watch(session);
  for (size_t w = 0; w < windows && !code; ++w) {
    deltaic_status status = deltaic_session_reset(session);
    code = complain_work(status ? status : likelihood_read(&l, session, tokens + w * n, n, 1));
  }
  interrupt_watch(NULL);
  v->nll.ours = l.nll / (double)l.predictions;
  deltaic_session_free(session);
  free(tokens);
  likelihood_end(&l);
  return code;
}
