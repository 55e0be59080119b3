// Tokenizers from the keys of a GGUF file: the same ids as from the tokenizer.json that they were made from.
#include "gguf.h"
#include "tokenizer_tools.h"

#include <jansson.h>

#define ASSERT_SAYS(text)                                                                                              \
  if (!strstr(deltaic_last_error(), text)) fail_msg("\"%s\" does not say \"%s\"", deltaic_last_error(), text)

// The keys that a converter writes for models/novelist.
static json_t *novelist_keys(void) {
  json_t *file = json_load_file(MODELS_DIR "/novelist/tokenizer.json", 0, NULL), *keys = json_object(), *value;
  const json_t *model = json_object_get(file, "model");
  const char *text;
  size_t i;
  assert_non_null(file);
  const size_t count = json_object_size(json_object_get(model, "vocab"));
  json_t *tokens = json_array(), *types = json_array(), *merges = json_array();
  for (i = 0; i < count; i++) {
    json_array_append_new(tokens, json_string("?"));
    json_array_append_new(types, json_integer(1));
  }
  json_object_foreach(json_object_get(model, "vocab"), text, value)
      json_array_set_new(tokens, (size_t)json_integer_value(value), json_string(text));
  json_array_foreach(json_object_get(file, "added_tokens"), i, value)
      json_array_set_new(types, (size_t)json_integer_value(json_object_get(value, "id")), json_integer(3));
  json_array_foreach(json_object_get(model, "merges"), i, value)
      json_array_append_new(merges, json_sprintf("%s %s", json_string_value(json_array_get(value, 0)),
                                                 json_string_value(json_array_get(value, 1))));
  json_object_set_new(keys, "tokenizer.ggml.model", json_string("gpt2"));
  json_object_set_new(keys, "tokenizer.ggml.pre", json_string("gpt-2"));
  json_object_set_new(keys, "tokenizer.ggml.tokens", tokens);
  json_object_set_new(keys, "tokenizer.ggml.token_type", types);
  json_object_set_new(keys, "tokenizer.ggml.merges", merges);
  json_object_set_new(keys, "tokenizer.ggml.bos_token_id", json_integer(1));
  json_object_set_new(keys, "tokenizer.ggml.add_bos_token", json_true());
  json_decref(file);
  return keys;
}

static deltaic_status of_keys(json_t *keys, deltaic_tokenizer **out) {
  const struct gguf gguf = {.keys = keys};
  return tokenizer_of_gguf(&gguf, (struct file_view){0}, "x.gguf", out);
}

static deltaic_tokenizer *open_keys(json_t *keys) {
  deltaic_tokenizer *t = NULL;
  if (of_keys(keys, &t)) fail_msg("%s", deltaic_last_error());
  return t;
}

static void check_ids(const deltaic_tokenizer *t, const json_t *item, const char *key, bool special) {
  const char *text = json_string_value(json_object_get(item, "text"));
  const json_t *want = json_object_get(item, key);
  int32_t ids[1024];
  size_t count;
  assert_int_equal(
      deltaic_tokenizer_encode(t, text, json_string_length(json_object_get(item, "text")), special, ids, 1024, &count),
      DELTAIC_OK);
  assert_int_equal(count, json_array_size(want));
  for (size_t i = 0; i < count; i++) assert_int_equal(ids[i], json_integer_value(json_array_get(want, i)));
}

static void ids_are_those_of_the_algorithm(void **state) {
  json_t *keys = novelist_keys(), *cases = json_load_file(VECTORS "/bpe.json", JSON_ALLOW_NUL, NULL), *item;
  deltaic_tokenizer *t = open_keys(keys);
  size_t i;
  assert_true(json_array_size(json_object_get(cases, "bpe")) > 50);
  json_array_foreach(json_object_get(cases, "bpe"), i, item) {
    check_ids(t, item, "ids", false);
    check_ids(t, item, "ids_special", true);
  }
  assert_string_equal(deltaic_tokenizer_kind(t), "byte-level BPE");
  assert_true(tokenizer_token(t, 1)->special);
  deltaic_tokenizer_close(t);
  json_decref(cases);
  json_decref(keys);
}

static void unused_tokens_are_no_tokens(void **state) {
  json_t *keys = novelist_keys();
  const json_t *text = json_array_get(json_object_get(keys, "tokenizer.ggml.tokens"), 300);
  json_t *merges = json_object_get(keys, "tokenizer.ggml.merges");
  deltaic_tokenizer *t = open_keys(keys);
  assert_int_equal(deltaic_tokenizer_find(t, json_string_value(text)), 300);
  deltaic_tokenizer_close(t);
  json_array_set_new(json_object_get(keys, "tokenizer.ggml.token_type"), 300, json_integer(5));
  json_array_clear(merges); // some of them make or need it
  t = open_keys(keys);
  assert_int_equal(deltaic_tokenizer_find(t, json_string_value(text)), -1);
  assert_null(tokenizer_token(t, 300));
  deltaic_tokenizer_close(t);
  json_decref(keys);
}

static void check_words(json_t *keys, const char *pre, const char *text, const char *const *words) {
  json_object_set_new(keys, "tokenizer.ggml.pre", json_string(pre));
  deltaic_tokenizer *t = open_keys(keys);
  struct pieces pieces = {0};
  assert_int_equal(tokenizer_split(t, text, strlen(text), &pieces), DELTAIC_OK);
  for (size_t i = 0; i < pieces.count; i++) {
    assert_non_null(words[i]);
    assert_int_equal(pieces.items[i].length, strlen(words[i]));
    assert_memory_equal(pieces.text.bytes + pieces.items[i].begin, words[i], strlen(words[i]));
  }
  assert_null(words[pieces.count]);
  pieces_free(&pieces);
  deltaic_tokenizer_close(t);
}

// As the byte-level step writes them: a space is Ġ. The vowel sign of Devanagari is a mark.
static void text_is_split_as_the_file_names(void **state) {
  json_t *keys = novelist_keys();
  check_words(keys, "gpt-2", "I'm 1234 ok", (const char *[]){"I", "'m", "Ġ1234", "Ġok", NULL});
  check_words(keys, "llama-bpe", "I'm 1234 ok", (const char *[]){"I", "'m", "Ġ", "123", "4", "Ġok", NULL});
  check_words(keys, "qwen2", "I'm 12 ok", (const char *[]){"I", "'m", "Ġ", "1", "2", "Ġok", NULL});
  check_words(keys, "qwen35", "I'M 12 ok", (const char *[]){"I", "'M", "Ġ", "1", "2", "Ġok", NULL});
  check_words(keys, "qwen2", "क\u093f", (const char *[]){"à¤ķ", "à¤¿", NULL});
  check_words(keys, "qwen35", "क\u093f", (const char *[]){"à¤ķà¤¿", NULL});
  check_words(keys, "qwen35", "e\u0301", (const char *[]){"Ã©", NULL}); // NFC
  json_decref(keys);
}

static void refuses(json_t *keys, const char *key, json_t *value, deltaic_status status, const char *text) {
  deltaic_tokenizer *t = NULL;
  json_t *copy = json_copy(keys);
  if (value)
    json_object_set_new(copy, key, value);
  else
    json_object_del(copy, key);
  assert_int_equal(of_keys(copy, &t), status);
  assert_null(t);
  ASSERT_SAYS("x.gguf");
  ASSERT_SAYS(text);
  json_decref(copy);
}

static void what_is_not_supported_or_damaged_is_named(void **state) {
  json_t *keys = novelist_keys();
  refuses(keys, "tokenizer.ggml.model", json_string("llama"), DELTAIC_UNSUPPORTED,
          "tokenizer.ggml.model \"llama\" is not supported; supported are: gpt2");
  refuses(keys, "tokenizer.ggml.pre", json_string("odd"), DELTAIC_UNSUPPORTED,
          "tokenizer.ggml.pre \"odd\" is not supported; supported are: qwen2, qwen35, llama-bpe, gpt-2");
  refuses(keys, "tokenizer.ggml.model", NULL, DELTAIC_BAD_FILE, "has no tokenizer.ggml.model");
  refuses(keys, "tokenizer.ggml.tokens", NULL, DELTAIC_BAD_FILE, "tokenizer.ggml.tokens must be a list");
  refuses(keys, "tokenizer.ggml.tokens", json_pack("[s,s]", "a", "a"), DELTAIC_BAD_FILE,
          "tokenizer.ggml.token_type has 4096 elements, expected 2");
  refuses(keys, "tokenizer.ggml.merges", json_pack("[s]", "nothing"), DELTAIC_BAD_FILE, "x.gguf");
  refuses(keys, "tokenizer.ggml.bos_token_id", json_integer(4096), DELTAIC_BAD_FILE,
          "tokenizer.ggml.bos_token_id is 4096 and must be from 0 to 4095");
  json_t *types = json_deep_copy(json_object_get(keys, "tokenizer.ggml.token_type"));
  json_array_set_new(types, 7, json_integer(9));
  refuses(keys, "tokenizer.ggml.token_type", types, DELTAIC_BAD_FILE, "token 7 has a type that is not known");
  json_t *tokens = json_deep_copy(json_object_get(keys, "tokenizer.ggml.tokens"));
  json_array_set(tokens, 9, json_array_get(tokens, 8));
  refuses(keys, "tokenizer.ggml.tokens", tokens, DELTAIC_BAD_FILE, "tokens 8 and 9 are both");
  json_decref(keys);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ids_are_those_of_the_algorithm), cmocka_unit_test(unused_tokens_are_no_tokens),
      cmocka_unit_test(text_is_split_as_the_file_names), cmocka_unit_test(what_is_not_supported_or_damaged_is_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
