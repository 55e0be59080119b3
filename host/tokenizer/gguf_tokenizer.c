// gguf_tokenizer: tokenizer.ggml.* of a GGUF file, as the tokenizer.json that the file was made from. The file names
// how text is split (tokenizer.ggml.pre); the regular expressions are in the table.
#include "gguf_tokenizer.h"

#include <string.h>

#define KEY "tokenizer.ggml."

// How a named tokenizer splits text, and whether it normalizes it first and takes whole words from the vocabulary.
static const struct pre {
  const char *name, *regex;
  bool nfc, ignore_merges;
} pres[] = {
    {"qwen2",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     true, false},
    {"qwen35",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
     "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     true, false},
    {"llama-bpe",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     false, true},
    {"gpt-2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", false, false},
};

enum token_type { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

static deltaic_status fail_name(const char *file, const char *key, const char *name, const char *list) {
  return fail(DELTAIC_UNSUPPORTED, "%s: " KEY "%s \"%.100s\" is not supported; supported are: %s", file, key, name,
              list);
}

static deltaic_status find_pre(struct json_reader *r, const json_t *keys, const struct pre **out) {
  const char *model = json_text(r, keys, KEY "model", NULL), *name = json_text(r, keys, KEY "pre", NULL);
  if (r->status) return r->status;
  if (!model || !name) return fail(DELTAIC_BAD_FILE, "%s: has no " KEY "%s", r->file, model ? "pre" : "model");
  if (strcmp(model, "gpt2")) return fail_name(r->file, "model", model, "gpt2");
  for (size_t i = 0; i < sizeof pres / sizeof *pres; i++)
    if (!strcmp(pres[i].name, name)) {
      *out = &pres[i];
      return DELTAIC_OK;
    }
  return fail_name(r->file, "pre", name, "qwen2, qwen35, llama-bpe, gpt-2");
}

static bool has_text(const json_t *object, const char *key, const char *text) {
  const char *value = json_string_value(json_object_get(object, key));
  return value && !strcmp(value, text);
}

const char *gguf_pre_of(const json_t *tokenizer) {
  const json_t *model = json_object_get(tokenizer, "model"), *normalizer = json_object_get(tokenizer, "normalizer");
  const json_t *both = json_object_get(tokenizer, "pre_tokenizer"), *list = json_object_get(both, "pretokenizers");
  const json_t *split = json_array_get(list, 0), *bytes = json_array_get(list, 1);
  const bool nfc = has_text(normalizer, "type", "NFC");
  const char *regex = json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
  if (!has_text(model, "type", "BPE") || (normalizer && !json_is_null(normalizer) && !nfc) ||
      !has_text(both, "type", "Sequence") || json_array_size(list) != 2 || !has_text(split, "type", "Split") ||
      !regex || !has_text(split, "behavior", "Isolated") || json_is_true(json_object_get(split, "invert")) ||
      !has_text(bytes, "type", "ByteLevel") || json_is_true(json_object_get(bytes, "add_prefix_space")) ||
      !json_is_false(json_object_get(bytes, "use_regex")))
    return NULL;
  for (size_t i = 0; i < sizeof pres / sizeof *pres; i++)
    if (!strcmp(pres[i].regex, regex) && pres[i].nfc == nfc &&
        pres[i].ignore_merges == json_is_true(json_object_get(model, "ignore_merges")))
      return pres[i].name;
  return NULL;
}

// The list of this name, of `count` elements (0: any number); NULL with *status set.
static const json_t *get_list(const struct json_reader *r, const json_t *keys, const char *key, size_t count,
                              deltaic_status *status) {
  const json_t *list = json_object_get(keys, key);
  if (!json_is_array(list))
    *status = fail(DELTAIC_BAD_FILE, "%s: %s must be a list", r->file, key);
  else if (count && json_array_size(list) != count)
    *status =
        fail(DELTAIC_BAD_FILE, "%s: %s has %zu elements, expected %zu", r->file, key, json_array_size(list), count);
  else
    return list;
  return NULL;
}

// Puts a token into the vocabulary or among the added tokens, by its type.
static deltaic_status add_token(const struct json_reader *r, size_t id, json_t *text, enum token_type type,
                                json_t *vocab, json_t *added) {
  const char *name = json_string_value(text);
  if (!name) return fail(DELTAIC_BAD_FILE, "%s: token %zu is not text", r->file, id);
  if (type == TYPE_UNUSED) return DELTAIC_OK;
  if (type == TYPE_CONTROL || type == TYPE_USER) {
    json_t *entry = json_pack("{s:I, s:O, s:b, s:b}", "id", (json_int_t)id, "content", text, "special",
                              type == TYPE_CONTROL, "normalized", 0);
    return json_array_append_new(added, entry) ? fail_memory("a tokenizer", 0) : DELTAIC_OK;
  }
  const json_t *other = json_object_get(vocab, name);
  if (other)
    return fail(DELTAIC_BAD_FILE, "%s: tokens %lld and %zu are both \"%.100s\"", r->file,
                (long long)json_integer_value(other), id, name);
  return json_object_set_new_nocheck(vocab, name, json_integer((json_int_t)id)) ? fail_memory("a tokenizer", 0)
                                                                                : DELTAIC_OK;
}

static deltaic_status add_tokens(struct json_reader *r, const json_t *keys, json_t *vocab, json_t *added) {
  deltaic_status status = DELTAIC_OK;
  const json_t *tokens = get_list(r, keys, KEY "tokens", 0, &status);
  const bool typed = json_present(keys, KEY "token_type");
  const json_t *types = NULL;
  if (!status && typed) types = get_list(r, keys, KEY "token_type", json_array_size(tokens), &status);
  for (size_t i = 0; !status && i < json_array_size(tokens); i++) {
    const json_t *type = json_array_get(types, i);
    const json_int_t number = type ? json_integer_value(type) : TYPE_NORMAL;
    if (type && (!json_is_integer(type) || number < TYPE_NORMAL || number > TYPE_BYTE))
      return fail(DELTAIC_BAD_FILE, "%s: token %zu has a type that is not known", r->file, i);
    status = add_token(r, i, json_array_get(tokens, i), (enum token_type)number, vocab, added);
  }
  return status;
}

// The text of the token whose id the key has; NULL: none.
static const json_t *token_of(struct json_reader *r, const json_t *keys, const char *key) {
  const json_t *tokens = json_object_get(keys, KEY "tokens");
  const size_t count = json_array_size(tokens);
  const int64_t id = json_int(r, keys, key, -1, 0, count ? (int64_t)count - 1 : 0);
  return id < 0 ? NULL : json_array_get(tokens, (size_t)id);
}

// The tokens before and after a text, as a post-processor; JSON null: none.
static json_t *template_json(struct json_reader *r, const json_t *keys) {
  static const char *const adds[2] = {KEY "add_bos_token", KEY "add_eos_token"};
  static const char *const ids[2] = {KEY "bos_token_id", KEY "eos_token_id"};
  json_t *single = json_array(), *special = json_object();
  for (int i = 0; i < 2; i++) {
    if (i) json_array_append_new(single, json_pack("{s:{s:s}}", "Sequence", "id", "A"));
    json_t *text = json_bool(r, keys, adds[i], false) ? (json_t *)token_of(r, keys, ids[i]) : NULL;
    if (!json_is_string(text)) continue;
    json_array_append_new(single, json_pack("{s:{s:O}}", "SpecialToken", "id", text));
    json_object_set_new_nocheck(special, json_string_value(text),
                                json_pack("{s:[O]}", "ids", json_object_get(keys, ids[i])));
  }
  if (json_object_size(special))
    return json_pack("{s:s, s:o, s:o}", "type", "TemplateProcessing", "single", single, "special_tokens", special);
  json_decref(single);
  json_decref(special);
  return json_null();
}

deltaic_status gguf_tokenizer_json(const char *file, const json_t *keys, json_t **out) {
  struct json_reader r = {.file = file};
  const struct pre *pre = NULL;
  *out = NULL;
  json_t *vocab = json_object(), *added = json_array();
  deltaic_status status = vocab && added ? find_pre(&r, keys, &pre) : fail_memory("a tokenizer", 0);
  if (!status) status = add_tokens(&r, keys, vocab, added);
  json_t *merges = status ? NULL : (json_t *)get_list(&r, keys, KEY "merges", 0, &status);
  json_t *template = status ? NULL : template_json(&r, keys);
  if (!status) status = r.status;
  if (!status) {
    json_t *normalizer = pre->nfc ? json_pack("{s:s}", "type", "NFC") : json_null();
    *out = json_pack("{s:{s:s, s:O, s:O, s:b}, s:O, s:o, s:{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b}]}, "
                     "s:{s:s}, s:O}",
                     "model", "type", "BPE", "vocab", vocab, "merges", merges, "ignore_merges", pre->ignore_merges,
                     "added_tokens", added, "normalizer", normalizer, "pre_tokenizer", "type", "Sequence",
                     "pretokenizers", "type", "Split", "pattern", "Regex", pre->regex, "behavior", "Isolated", "invert",
                     0, "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 0, "decoder", "type", "ByteLevel",
                     "post_processor", template);
    if (!*out) status = fail_memory("a tokenizer", 0);
  }
  json_decref(template);
  json_decref(vocab);
  json_decref(added);
  return status;
}
