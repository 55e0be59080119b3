// quant_tokenizer: a tokenizer.json as tokenizer.ggml.*, which gguf_tokenizer.c reads.
#include "gguf_tokenizer.h"
#include "quant_keys.h"
#include "quant_qwen.h"

#include <stdio.h>
#include <string.h>

#define KEY "tokenizer.ggml."
enum { NORMAL = 1, CONTROL = 3, USER = 4, UNUSED = 5 };

struct lists {
  const struct quant *q;
  json_t *tokens, *types; // of every id of the model
};

static deltaic_status set_token(const struct lists *l, const json_t *id, const char *text, int type) {
  const json_int_t at = json_integer_value(id);
  if (!json_is_integer(id) || !text || at < 0)
    return fail(DELTAIC_BAD_FILE, "%s: tokenizer.json has a token without a text or an id", l->q->path);
  if (at >= (json_int_t)l->q->spec.V)
    return fail(DELTAIC_BAD_FILE, "%s: tokenizer.json has token %lld, the model %u", l->q->path, (long long)at,
                l->q->spec.V);
  const bool bad = json_array_set_new(l->tokens, (size_t)at, json_string(text)) ||
                   json_array_set_new(l->types, (size_t)at, json_integer(type));
  return bad ? fail_memory("a tokenizer", 0) : DELTAIC_OK;
}

static deltaic_status fill(const struct lists *l, const json_t *tokenizer) {
  const json_t *vocab = json_object_get(json_object_get(tokenizer, "model"), "vocab");
  const json_t *added = json_object_get(tokenizer, "added_tokens"), *item;
  deltaic_status status = DELTAIC_OK;
  bool bad = false;
  for (uint32_t i = 0; i < l->q->spec.V; i++) {
    char text[32];
    snprintf(text, sizeof text, "[PAD%u]", i);
    bad |= json_array_append_new(l->tokens, json_string(text)) || json_array_append_new(l->types, json_integer(UNUSED));
  }
  if (bad) return fail_memory("a tokenizer", 0);
  const char *text;
  json_t *id;
  json_object_foreach((json_t *)vocab, text, id) {
    status = set_token(l, id, text, NORMAL);
    if (status) return status;
  }
  size_t i;
  json_array_foreach(added, i, item) {
    const bool special = json_is_true(json_object_get(item, "special"));
    status = set_token(l, json_object_get(item, "id"), json_string_value(json_object_get(item, "content")),
                       special ? CONTROL : USER);
    if (status) return status;
  }
  return status;
}

// "a b" of each pair.
static json_t *merges_of(const json_t *tokenizer) {
  const json_t *from = json_object_get(json_object_get(tokenizer, "model"), "merges"), *item;
  json_t *merges = json_array();
  size_t i;
  json_array_foreach(from, i, item) {
    json_t *text = json_is_string(item) ? json_incref((json_t *)item)
                                        : json_sprintf("%s %s", json_string_value(json_array_get(item, 0)) ?: "",
                                                       json_string_value(json_array_get(item, 1)) ?: "");
    if (json_array_append_new(merges, text)) {
      json_decref(merges);
      return NULL;
    }
  }
  return merges;
}

// What the keys cannot say: tokens that take white space with them or stand alone, and what is put around a text.
static bool says_more(const json_t *tokenizer) {
  static const char *const flags[] = {"lstrip", "rstrip", "single_word", "normalized"};
  const json_t *after = json_object_get(tokenizer, "post_processor"), *item;
  const char *type = json_string_value(json_object_get(after, "type"));
  bool more = after && !json_is_null(after) && (!type || strcmp(type, "ByteLevel"));
  size_t i;
  json_array_foreach(json_object_get(tokenizer, "added_tokens"), i, item) {
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) more |= json_is_true(json_object_get(item, flags[k]));
  }
  return more;
}

deltaic_status quant_tokenizer_keys(const struct quant *q, const json_t *tokenizer, struct gguf_writer *w,
                                    bool *whole) {
  const char *named = gguf_pre_of(tokenizer), *pre = named ? named : q->family->pre;
  *whole = !named || says_more(tokenizer);
  gguf_key_text(w, KEY "model", "gpt2", 4);
  const struct lists l = {q, json_array(), json_array()};
  json_t *merges = merges_of(tokenizer);
  deltaic_status status = l.tokens && l.types && merges ? fill(&l, tokenizer) : fail_memory("a tokenizer", 0);
  if (!status) {
    gguf_key_text(w, KEY "pre", pre, strlen(pre));
    gguf_key_list(w, KEY "tokens", l.tokens);
    gguf_key_list(w, KEY "token_type", l.types);
    gguf_key_list(w, KEY "merges", merges);
    gguf_key_bool(w, KEY "add_bos_token", false);
  }
  json_decref(l.tokens);
  json_decref(l.types);
  json_decref(merges);
  return status;
}
