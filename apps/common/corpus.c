// corpus: see corpus.h.
#include "corpus.h"
#include "common.h"
#include "engine.h"
#include "eval_text.h"
#include "lines.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct reader {
  struct corpus *corpus;
  const struct corpus_reading *reading;
  deltaic_tokenizer *tokenizer; // opened for the first text
  int32_t end;                  // the token that ends a record; -1: none
};

void corpus_free(struct corpus *c) {
  free(c->tokens);
  free(c->ends);
  *c = (struct corpus){0};
}

static bool full(const struct reader *r) { return r->reading->most && r->corpus->count >= r->reading->most; }

static void add_tokens(struct reader *r, const int32_t *ids, size_t count) {
  struct corpus *c = r->corpus;
  if (r->reading->most && count > r->reading->most - c->count) count = r->reading->most - c->count;
  c->tokens = must_resize(c->tokens, (c->count + count) * sizeof *c->tokens);
  memcpy(c->tokens + c->count, ids, count * sizeof *ids);
  c->count += count;
}

static void end_text(struct reader *r) {
  struct corpus *c = r->corpus;
  if (!r->reading->separate) return;
  if (!(c->end_count & (c->end_count + 1))) c->ends = must_resize(c->ends, 2 * (c->end_count + 1) * sizeof *c->ends);
  c->ends[c->end_count++] = c->count;
}

static int open_tokenizer(struct reader *r) {
  size_t count = 0;
  if (r->tokenizer) return EXIT_OK;
  r->end = -1;
  int code = tokenizer_open(r->reading->model, &r->tokenizer);
  if (!code) code = complain_status(deltaic_model_inspect_ends(r->reading->model, NULL, 0, &count));
  if (code || !count) return code;
  int32_t *ends = must_resize(NULL, count * sizeof *ends);
  code = complain_status(deltaic_model_inspect_ends(r->reading->model, ends, count, &count));
  if (!code) r->end = ends[0];
  free(ends);
  return code;
}

// special: the text is one of its own, with the tokenizer's begin token and the model's first end token.
static int add_text(struct reader *r, const char *text, size_t bytes, const char *where, bool special) {
  int32_t *ids = NULL;
  size_t count = 0;
  int code = open_tokenizer(r);
  if (!code) code = text_encode(r->tokenizer, text, bytes, where, special, &ids, &count);
  if (code) return code;
  r->corpus->words += split_words(text, bytes);
  r->corpus->bytes += bytes;
  add_tokens(r, ids, count);
  if (special && r->end >= 0) add_tokens(r, &r->end, 1);
  if (special) end_text(r);
  free(ids);
  return EXIT_OK;
}

// ---------------------------------------------------------------- files

static int add_record(struct reader *r, struct lines *l) {
  json_t *record = json_loadb(l->text, l->length, 0, NULL);
  const json_t *text = json_object_get(record, "text");
  int code = EXIT_OK;
  if (!record)
    code = complain(EXIT_FAILED, "%s, line %zu: is not JSON", l->path, l->number);
  else if (!json_is_string(text))
    code = complain(EXIT_FAILED, "%s, line %zu: has no text \"text\"", l->path, l->number);
  else
    code = add_text(r, json_string_value(text), json_string_length(text), l->path, true);
  json_decref(record);
  return code;
}

// JSONL, or the lines of a text.
static int add_lines(struct reader *r, const char *path, bool json) {
  struct lines *l = must_resize(NULL, sizeof *l);
  int code = lines_open(l, path);
  while (!code && !full(r) && lines_next(l)) {
    if (*l->problem)
      code = complain(EXIT_FAILED, "%s, line %zu: %s", l->path, l->number, l->problem);
    else if (space_at_begin(l->text, l->length) < l->length)
      code = json ? add_record(r, l) : add_text(r, l->text, l->length, l->path, true);
  }
  int closed = lines_close(l);
  free(l);
  return code ? code : closed;
}

// Every token of a file must be one of the model's.
static int check_tokens(const struct reader *r, const char *path, const int32_t *ids, size_t count) {
  deltaic_model_info info;
  int code = complain_status(deltaic_model_inspect(NULL, r->reading->model, NULL, &info, NULL));
  for (size_t i = 0; i < count && !code; ++i)
    if (ids[i] < 0 || ids[i] >= info.vocabulary)
      code = complain(EXIT_FAILED, "%s: token %zu is %d, but the vocabulary of %s has the tokens 0 to %d", path, i,
                      ids[i], r->reading->model, info.vocabulary - 1);
  return code;
}

static int add_tensor(struct reader *r, const char *path) {
  deltaic_tensors *tensors = NULL;
  deltaic_tensor_info info;
  int code = complain_status(deltaic_tensors_open(path, &tensors));
  if (code) return code;
  if (!deltaic_tensors_find(tensors, "tokens", &info))
    code = complain(EXIT_FAILED, "%s: has no tensor \"tokens\"", path);
  else {
    int32_t *ids = must_resize(NULL, info.count * sizeof *ids);
    code = complain_status(deltaic_tensors_read_integers(tensors, "tokens", 0, info.count, ids));
    if (!code) code = check_tokens(r, path, ids, info.count);
    if (!code) add_tokens(r, ids, info.count);
    if (!code) end_text(r);
    free(ids);
  }
  deltaic_tensors_close(tensors);
  return code;
}

// Ignores the case of `text`.
static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), tail = strlen(end);
  size_t i = 0;
  while (length >= tail && i < tail && tolower((unsigned char)text[length - tail + i]) == end[i]) ++i;
  return i == tail;
}

bool corpus_is_plain(const char *path) { return !ends_with(path, ".safetensors") && !ends_with(path, ".jsonl"); }

static int add_file(struct reader *r, const char *path) {
  if (ends_with(path, ".safetensors")) return add_tensor(r, path);
  if (ends_with(path, ".jsonl")) return add_lines(r, path, true);
  if (r->reading->separate) return add_lines(r, path, false);
  size_t bytes;
  char *text = file_read(path, &bytes);
  int code = text ? add_text(r, text, bytes, input_name(path), false) : EXIT_FAILED;
  free(text);
  return code;
}

int corpus_read(struct corpus *corpus, const struct corpus_reading *reading, const char *const *files, size_t count) {
  struct reader r = {.corpus = corpus, .reading = reading, .end = -1};
  int code = EXIT_OK;
  *corpus = (struct corpus){0};
  for (size_t i = 0; i < count && !code && !full(&r); ++i) code = add_file(&r, files[i]);
  deltaic_tokenizer_close(r.tokenizer);
  if (code) corpus_free(corpus);
  return code;
}
