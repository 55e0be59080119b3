// eval_encode: converts texts to requests by the rules of lm-evaluation-harness (docs/eval.md lists them).
#include "common.h"
#include "eval.h"
#include "eval_text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_LENGTH = 2048 };

// ---------------------------------------------------------------- the checkpoint's tokenizer and length

// Returns 0 if the file has none of the keys.
static uint32_t length_in(const char *model, const char *file, const char *const *keys, size_t count) {
  char path[1024];
  snprintf(path, sizeof path, "%.1000s/%s", model, file);
  json_t *config = json_load_file(path, 0, NULL);
  json_int_t length = 0;
  for (size_t i = 0; i < count && !length; ++i) length = json_integer_value(json_object_get(config, keys[i]));
  json_decref(config);
  return length > 0 && length < INT32_MAX ? (uint32_t)length : 0; // 10^30: the tokenizer has no limit
}

static uint32_t longest_text(const char *model, const deltaic_model_info *info) {
  static const char *const keys[] = {"n_positions", "max_position_embeddings", "n_ctx"}, *const other =
                                                                                             "model_max_length";
  uint32_t length = length_in(model, "config.json", keys, sizeof keys / sizeof *keys);
  if (!length) length = length_in(model, "tokenizer_config.json", &other, 1);
  if (!length && info->context > 0) length = (uint32_t)info->context; // of a GGUF file
  return length ? length : DEFAULT_LENGTH;
}

static bool needs_tokenizer(const struct eval_task *task) {
  for (size_t i = 0; i < task->count; ++i) {
    if (task->cases[i].context.text || task->cases[i].answer_count) return true;
    for (size_t k = 0; k < task->cases[i].choices; ++k)
      if (task->cases[i].choice[k].text.text) return true;
  }
  return false;
}

static int32_t prefix_token(const struct encoder *e) {
  return e->info.bos_token >= 0 ? e->info.bos_token : e->info.eos_token;
}

// Reads the text of the prefix token, e.g. "<s>".
static int read_prefix(struct encoder *e) {
  int32_t prefix = prefix_token(e);
  size_t bytes = 0;
  if (prefix < 0 || !e->tokenizer || prefix >= deltaic_tokenizer_size(e->tokenizer)) return EXIT_OK;
  deltaic_status status =
      deltaic_tokenizer_decode(e->tokenizer, &prefix, 1, false, e->prefix, sizeof e->prefix - 1, &bytes);
  if (status == DELTAIC_BUFFER_TOO_SMALL) return EXIT_OK; // it stays empty: no text begins with so long a token
  e->prefix[status ? 0 : bytes] = 0;
  return complain_status(status);
}

int encoder_open(struct encoder *e, const char *model, const struct eval_options *options,
                 const struct eval_task *task) {
  *e = (struct encoder){.options = options, .task = task};
  int code = complain_status(deltaic_model_inspect(NULL, model, NULL, &e->info, NULL));
  e->max_length = options->max_length ? options->max_length : longest_text(model, &e->info);
  if (!code && needs_tokenizer(task)) code = tokenizer_open(model, &e->tokenizer);
  if (!code) code = read_prefix(e);
  return code;
}

void encoder_close(struct encoder *e) {
  deltaic_tokenizer_close(e->tokenizer);
  e->tokenizer = NULL;
}

void requests_free(struct requests *requests) {
  for (size_t i = 0; i < requests->count; ++i) free(requests->items[i].ids);
  free(requests->items);
  *requests = (struct requests){0};
}

// ---------------------------------------------------------------- pairs

struct ids {
  int32_t *at;
  size_t count;
};

__attribute__((format(printf, 3, 4))) static int refuse(const struct encoder *e, size_t index, const char *format,
                                                        ...) {
  char sentence[160];
  va_list args;
  va_start(args, format);
  vsnprintf(sentence, sizeof sentence, format, args);
  va_end(args);
  if (!e->task->file) return complain(EXIT_FAILED, "%s, case %zu: %s", e->task->name, index + 1, sentence);
  return complain(EXIT_FAILED, "%s:%zu: %s", e->task->file, e->task->cases[index].line, sentence);
}

// Refuses a word of a generated test that has no token: it would vanish from the text. Each word has a token of its own
// if there are as many tokens as words.
static int check_words(const struct encoder *e, size_t index, const struct eval_text *t, const struct ids *ids) {
  const bool begins = ids->count && ids->at[0] == prefix_token(e);
  const char *end = t->text + t->count;
  if (e->task->file || ids->count >= split_words(t->text, t->count) + begins) return EXIT_OK;
  for (const char *word = t->text; word < end; ++word) {
    size_t length = 0, count = 0;
    while (word + length < end && word[length] != ' ') ++length;
    deltaic_status status = deltaic_tokenizer_encode(e->tokenizer, word, length, false, NULL, 0, &count);
    if (status) return complain_status(status);
    if (length && !count)
      return refuse(
          e, index,
          "the tokenizer has no token for \"%.*s\"; give the options of this test that the model was trained with",
          (int)(length < 40 ? length : 40), word);
    word += length;
  }
  return EXIT_OK;
}

static int encode(const struct encoder *e, size_t index, const struct eval_text *t, bool special, struct ids *out) {
  *out = (struct ids){0};
  if (t->text && *e->prefix && !strncmp(t->text, e->prefix, strlen(e->prefix))) special = false; // it has one
  if (t->text) {
    const int code = text_encode(e->tokenizer, t->text, t->count, NULL, special, &out->at, &out->count);
    return code ? code : check_words(e, index, t, out);
  }
  out->count = t->count;
  out->at = must_resize(NULL, t->count * sizeof *out->at);
  if (t->count) memcpy(out->at, t->ids, t->count * sizeof *out->at);
  for (size_t i = 0; i < t->count; ++i)
    if (t->ids[i] >= e->info.vocabulary)
      return refuse(e, index, "token id %d is outside of the checkpoint's vocabulary of %d", t->ids[i],
                    e->info.vocabulary);
  return EXIT_OK;
}

static struct request *add_request(struct requests *r) {
  if (r->count == r->capacity) {
    r->capacity = 2 * r->capacity + 64;
    r->items = must_resize(r->items, r->capacity * sizeof *r->items);
  }
  struct request *request = &r->items[r->count++];
  *request = (struct request){0};
  return request;
}

// Keeps the last max_length + 1 tokens of context and continuation, because the last token is not evaluated.
static int add_pair(const struct encoder *e, size_t index, uint32_t choice, struct ids context, struct ids continuation,
                    struct requests *out) {
  size_t most = e->task->cases[index].whole ? SIZE_MAX : (size_t)e->max_length + 1,
         count = context.count + continuation.count;
  size_t cut = count > most ? count - most : 0;
  if (!continuation.count) return refuse(e, index, "the continuation has no token of its own after its context");
  if (cut >= context.count)
    return refuse(e, index, "the continuation is longer than --max-length, or its context is empty");
  if (count - cut > UINT32_MAX) return refuse(e, index, "the text is too long");
  struct request *r = add_request(out);
  *r = (struct request){.count = (uint32_t)(count - cut),
                        .context = (uint32_t)(context.count - cut),
                        .index = (uint32_t)index,
                        .choice = choice};
  r->ids = must_resize(NULL, r->count * sizeof *r->ids);
  memcpy(r->ids, context.at + cut, r->context * sizeof *r->ids);
  memcpy(r->ids + r->context, continuation.at, continuation.count * sizeof *r->ids);
  return EXIT_OK;
}

// An empty context becomes the prefix token. White space at the end of a context belongs to the continuation. The
// continuation's tokens are the tokens of both together without the first n, if the context alone has n tokens. head:
// the context's tokens if an earlier choice has the same context; the caller frees them.
static int encode_pair(const struct encoder *e, size_t index, uint32_t choice, const struct eval_text *context,
                       const struct eval_text *text, struct ids *head, struct requests *out) {
  struct ids before = {0}, after = {0};
  int32_t prefix = prefix_token(e);
  int code = EXIT_OK;
  if (context->count && context->text && text->text) {
    struct eval_text stripped = {.text = context->text, .count = space_at_end(context->text, context->count)};
    char *both = must_resize(NULL, context->count + text->count + 1);
    memcpy(both, context->text, context->count);
    memcpy(both + context->count, text->text, text->count);
    struct eval_text whole = {.text = both, .count = context->count + text->count};
    if (!head->at) code = encode(e, index, &stripped, !e->options->no_bos, head);
    if (!code) code = encode(e, index, &whole, !e->options->no_bos, &after);
    size_t skip = head->count < after.count ? head->count : after.count;
    struct ids rest = {after.at + skip, after.count - skip};
    if (!code) code = add_pair(e, index, choice, *head, rest, out);
    free(both);
  } else {
    code = encode(e, index, context, !e->options->no_bos, &before);
    if (!code) code = encode(e, index, text, false, &after);
    struct ids first = before, rest = after;
    if (!code && !before.count) {
      if (prefix < 0) code = refuse(e, index, "the context is empty, and the checkpoint has no token to begin with");
      bool begins = after.count && after.at[0] == prefix; // the continuation begins with a prefix token
      first = begins ? (struct ids){after.at, 1} : (struct ids){&prefix, 1};
      if (begins) rest = (struct ids){after.at + 1, after.count - 1};
    }
    if (!code) code = add_pair(e, index, choice, first, rest, out);
  }
  free(before.at);
  free(after.at);
  return code;
}

// ---------------------------------------------------------------- documents and continuations

// Predicts every token once, max_length tokens at a time. Each window follows one token that was already predicted (at
// first the prefix token). The last window has full length and scores only the remaining tokens.
static int encode_document(const struct encoder *e, size_t index, struct requests *out) {
  struct ids text;
  size_t most = e->max_length;
  int32_t prefix = prefix_token(e);
  if (prefix < 0) return refuse(e, index, "the checkpoint has no token for a document to begin with");
  int code = encode(e, index, &e->task->cases[index].choice[0].text, !e->options->no_bos, &text);
  for (size_t done = 0, n; done < text.count && !code; done += n) {
    n = text.count - done < most ? text.count - done : most;
    size_t end = done + n, begin = done && end > most ? end - most - 1 : done - 1; // done 0: the prefix token
    struct ids context = {&prefix, 1}, rest = {text.at + done, n};
    if (done) context = (struct ids){text.at + begin, done - begin};
    code = add_pair(e, index, 0, context, rest, out);
  }
  free(text.at);
  return code;
}

// Keeps the end of the context that leaves room for the new tokens.
static int encode_prompt(const struct encoder *e, size_t index, struct requests *out) {
  const struct eval_case *c = &e->task->cases[index];
  struct ids text;
  uint32_t make = e->options->new_tokens;
  int32_t prefix = prefix_token(e);
  if (!c->whole && e->max_length <= make)
    return complain(EXIT_USAGE, "--max-length %u leaves no room before --new %u", e->max_length, make);
  int code = encode(e, index, &c->context, !e->options->no_bos, &text);
  if (!code && !text.count && prefix < 0)
    code = refuse(e, index, "the context is empty, and the checkpoint has no token to begin with");
  if (!code) {
    struct ids from = text.count ? text : (struct ids){&prefix, 1};
    size_t most = c->whole ? from.count : e->max_length - make, n = from.count < most ? from.count : most;
    struct request *r = add_request(out);
    *r = (struct request){.count = (uint32_t)n, .context = (uint32_t)n, .make = make, .index = (uint32_t)index};
    r->ids = must_resize(NULL, n * sizeof *r->ids);
    memcpy(r->ids, from.at + from.count - n, n * sizeof *r->ids);
  }
  free(text.at);
  return code;
}

int encode_case(const struct encoder *e, size_t index, struct requests *out) {
  const struct eval_case *c = &e->task->cases[index];
  if (e->task->kind == EVAL_ROLLING) return encode_document(e, index, out);
  if (e->task->kind == EVAL_RECALL) return encode_prompt(e, index, out);
  int code = EXIT_OK;
  struct ids head = {0};
  for (uint32_t i = 0; i < c->choices && !code; ++i) {
    const struct eval_text *own = &c->choice[i].context;
    bool has_own = own->text || own->ids;
    if (has_own) {
      free(head.at);
      head = (struct ids){0};
    }
    code = encode_pair(e, index, i, has_own ? own : &c->context, &c->choice[i].text, &head, out);
  }
  free(head.at);
  return code;
}
