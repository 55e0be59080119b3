// ranks_run: evaluates a text with one checkpoint and measures the states that a probe returns.
#include "common.h"
#include "corpus.h"
#include "ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
  struct measured *m;
  struct engine engine;
  struct progress progress;
  int32_t *ids;
  size_t every;
  double values_counted;
  int code; // exit code of the probe, which returns only a bool
};

// ---------------------------------------------------------------- one state

static double cosine(const float *a, const float *b, size_t count) {
  double dot = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < count; ++i) {
    dot += (double)a[i] * b[i];
    aa += (double)a[i] * a[i];
    bb += (double)b[i] * b[i];
  }
  return aa > 0 && bb > 0 ? dot / sqrt(aa * bb) : NAN;
}

static void add_spectrum(struct reading *r, const double *values, size_t count) {
  for (size_t i = 0; i < count && values[0] > 0; ++i) {
    double at = values[i] > 0 ? (log10(values[i] / values[0]) - SPECTRUM_LEAST) / -SPECTRUM_LEAST * RANK_BINS : -1;
    if (at < 0)
      ++r->m->zeros;
    else
      ++r->m->spectrum[at < RANK_BINS ? (int)at : RANK_BINS - 1];
    ++r->values_counted;
  }
}

static bool measure_states(struct reading *r, struct layer_ranks *l, const deltaic_probed *p) {
  size_t dk = (size_t)l->key_size, dv = (size_t)l->value_size, size = dk * dv;
  size_t time = (size_t)p->position / r->every;
  double *values = must_resize(NULL, (dk < dv ? dk : dv) * sizeof *values);
  for (int32_t h = 0; h < l->heads && !r->code; ++h) {
    const float *state = p->data + (size_t)h * size;
    float *before = l->before + (size_t)h * size;
    struct sample *s = &l->samples[time * (size_t)l->heads + (size_t)h];
    r->code = complain_status(deltaic_matrix_rank(state, dk, dv, RANK_ZERO, &s->rank, values));
    if (r->code) break;
    add_spectrum(r, values, dk < dv ? dk : dv);
    s->similarity = time ? cosine(state, before, size) : NAN;
    memcpy(before, state, size * sizeof *before);
  }
  free(values);
  r->m->at[time] = (double)p->position + 1;
  return !r->code;
}

// ---------------------------------------------------------------- layers

static void *zeros(size_t count, size_t size) {
  void *out = must_resize(NULL, count * size);
  memset(out, 0, count * size);
  return out;
}

static struct layer_ranks *add_layer(struct reading *r, const deltaic_probed *p) {
  struct measured *m = r->m;
  size_t states = (size_t)p->value_heads * (size_t)p->key_size * (size_t)p->value_size;
  m->layers = must_resize(m->layers, (m->layer_count + 1) * sizeof *m->layers);
  struct layer_ranks *l = &m->layers[m->layer_count++];
  *l = (struct layer_ranks){.layer = p->layer,
                            .heads = p->value_heads,
                            .key_size = p->key_size,
                            .value_size = p->value_size,
                            .steps = p->steps,
                            .samples = zeros(m->times * (size_t)p->value_heads, sizeof *l->samples),
                            .before = zeros(states, sizeof *l->before)};
  return l;
}

// Adds the means over heads. Each row of the probed data is (steps, heads).
static void add_betas(struct measured *m, struct layer_ranks *l, const deltaic_probed *p) {
  size_t heads = (size_t)l->heads, steps = p->cols / heads;
  if (!l->beta) l->beta = zeros(steps * m->tokens, sizeof *l->beta);
  for (size_t t = 0; t < p->rows; ++t)
    for (size_t i = 0; i < p->cols; ++i)
      l->beta[i / heads * m->tokens + p->position + t] += p->data[t * p->cols + i] / (double)heads;
}

static void add_decays(struct measured *m, struct layer_ranks *l, const deltaic_probed *p) {
  if (!l->decay) l->decay = zeros(m->tokens, sizeof *l->decay);
  for (size_t t = 0; t < p->rows; ++t)
    for (size_t i = 0; i < p->cols; ++i) l->decay[p->position + t] += exp(p->data[t * p->cols + i]) / (double)p->cols;
}

static bool on_probe(void *user, const deltaic_probed *p) {
  struct reading *r = user;
  struct layer_ranks *l = find_layer(r->m, (uint32_t)p->layer);
  if (p->kind == DELTAIC_PROBE_MIXER_INPUT) {
    mask_add(&r->m->masks[p->layer], p->data, p->rows, p->cols);
    progress_show(&r->progress, p->position, r->m->tokens);
    return !interrupted();
  }
  if (!p->value_heads || !p->key_size) return true;
  if (!l) l = add_layer(r, p);
  if (p->kind == DELTAIC_PROBE_BETA) add_betas(r->m, l, p);
  if (p->kind == DELTAIC_PROBE_DECAY) add_decays(r->m, l, p);
  if (p->kind == DELTAIC_PROBE_STATE) return !r->code && measure_states(r, l, p);
  return !r->code;
}

// ---------------------------------------------------------------- text

static void append(struct reading *r, const int32_t *ids, size_t count) {
  struct measured *m = r->m;
  r->ids = must_resize(r->ids, (m->tokens + count) * sizeof *r->ids);
  memcpy(r->ids + m->tokens, ids, count * sizeof *ids);
  m->tokens += count;
}

static void add_mark(struct measured *m) {
  m->marks = must_resize(m->marks, (m->mark_count + 1) * sizeof *m->marks);
  m->marks[m->mark_count++] = (double)m->tokens;
}

static int add_document(struct reading *r, const deltaic_tokenizer *tokenizer, const char *file, const char *text,
                        size_t bytes, int32_t begin) {
  int32_t *ids = NULL;
  size_t count = 0;
  int code = text_encode(tokenizer, text, bytes, file, false, &ids, &count);
  if (!code && count) {
    if (r->m->tokens) add_mark(r->m);
    if (begin >= 0) append(r, &begin, 1);
    append(r, ids, count);
  }
  free(ids);
  return code;
}

static const char *next_separator(const char *text, const char *end, const char *separator) {
  size_t length = separator ? strlen(separator) : 0;
  for (; length && (size_t)(end - text) >= length; ++text)
    if (!memcmp(text, separator, length)) return text;
  return end;
}

// Reads JSONL, each record of which is a document, or token ids.
static int read_records(struct reading *r, const struct rank_request *request) {
  const struct corpus_reading reading = {r->m->path, request->tokens, true};
  struct corpus texts;
  const int code = corpus_read(&texts, &reading, &request->text, 1);
  if (code) return code;
  for (size_t i = 0, first = 0; i < texts.end_count; first = texts.ends[i++]) {
    if (r->m->tokens) add_mark(r->m);
    append(r, texts.tokens + first, texts.ends[i] - first);
  }
  corpus_free(&texts);
  return EXIT_OK;
}

static int read_plain(struct reading *r, const struct rank_request *request) {
  deltaic_tokenizer *tokenizer = NULL;
  size_t bytes;
  char *text = file_read(request->text, &bytes);
  if (!text) return EXIT_FAILED;
  const char *at = text, *end = text + bytes;
  int code = tokenizer_open(r->m->path, &tokenizer);
  while (!code && at < end && (!request->tokens || r->m->tokens < request->tokens)) {
    const char *stop = next_separator(at, end, request->separator);
    code = add_document(r, tokenizer, request->text, at, (size_t)(stop - at), r->engine.model_info.bos_token);
    at = stop < end ? stop + strlen(request->separator) : end;
  }
  deltaic_tokenizer_close(tokenizer);
  free(text);
  return code;
}

static int read_documents(struct reading *r, const struct rank_request *request) {
  int code = corpus_is_plain(request->text) ? read_plain(r, request) : read_records(r, request);
  if (request->tokens && r->m->tokens > request->tokens) r->m->tokens = request->tokens;
  while (r->m->mark_count && r->m->marks[r->m->mark_count - 1] >= (double)r->m->tokens) --r->m->mark_count;
  if (!code && !r->m->tokens) code = complain(EXIT_FAILED, "%s: there is no text in it", request->text);
  return code;
}

// ---------------------------------------------------------------- one checkpoint

static int read_text(struct reading *r, const struct rank_request *request) {
  struct measured *m = r->m;
  struct engine_options options = request->engine;
  deltaic_session *session;
  options.batch = request->every; // a state is recorded after each slice
  options.context = m->tokens < UINT32_MAX ? (uint32_t)m->tokens + 1 : UINT32_MAX;
  r->every = request->every;
  m->times = (m->tokens + r->every - 1) / r->every;
  m->at = zeros(m->times, sizeof *m->at);
  int code = session_create(&r->engine, &options, &session);
  if (code) return code;
  double start = time_now();
  uint32_t kinds = DELTAIC_PROBE_STATE | DELTAIC_PROBE_BETA | DELTAIC_PROBE_DECAY | DELTAIC_PROBE_MIXER_INPUT;
  progress_begin(&r->progress, m->name, "tokens", options.quiet);
  interrupt_watch(session);
  deltaic_status status = deltaic_session_probe(session, kinds, on_probe, r);
  if (!status) status = deltaic_session_eval(session, r->ids, m->tokens, DELTAIC_LOGITS_NONE, NULL);
  interrupt_watch(NULL);
  progress_clear();
  m->seconds = time_now() - start;
  code = r->code ? r->code : complain_work(status);
  deltaic_session_free(session);
  return code;
}

static void finish(struct reading *r) {
  struct measured *m = r->m;
  for (int i = 0; i < RANK_BINS && r->values_counted > 0; ++i) m->spectrum[i] /= r->values_counted;
  if (r->values_counted > 0) m->zeros /= r->values_counted;
}

static int check_layers(const struct reading *r, const struct count_list *layers) {
  int32_t count = r->engine.model_info.layers;
  for (size_t i = 0; i < layers->count; ++i)
    if (layers->values[i] >= (uint32_t)count)
      return complain(EXIT_USAGE, "--layers %u: %s has 0 to %d", layers->values[i], r->m->path, count - 1);
  return EXIT_OK;
}

int measure_checkpoint(struct measured *m, const struct rank_request *request) {
  struct reading r = {.m = m};
  struct engine_options options = request->engine;
  options.model = m->path;
  int code = engine_open(&options, &r.engine);
  if (!code) snprintf(m->device, sizeof m->device, "%s", engine_device_text(&r.engine));
  if (!code) code = check_layers(&r, &request->layers);
  if (!code) code = masks_open(m, r.engine.model_info.layers, r.engine.model_info.width);
  if (!code) code = read_documents(&r, request);
  if (!code) code = read_text(&r, request);
  if (!code && !m->layer_count) code = complain(EXIT_FAILED, "%s: has no layer with a recurrent state", m->path);
  finish(&r);
  free(r.ids);
  return engine_close(&r.engine, code);
}

void measured_free(struct measured *m) {
  for (size_t i = 0; i < m->layer_count; ++i) {
    struct layer_ranks *l = &m->layers[i];
    free(l->samples);
    free(l->before);
    free(l->beta);
    free(l->decay);
  }
  masks_free(m);
  free(m->layers);
  free(m->at);
  free(m->marks);
}
