// gguf_tokenizer: tokenizer.ggml.* of a GGUF file, as the parts of the tokenizer.json that it was made from. The file
// names how text is split (tokenizer.ggml.pre); the regular expressions are in the table.
#include "gguf_tokenizer.h"

#include "text.h"

#include <stdlib.h>
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

// The list of this name, of `count` elements (0: any number).
static deltaic_status get_list(const char *file, const struct gguf *gguf, const char *key, uint64_t count,
                               struct gguf_list *out) {
  *out = gguf_list_of(gguf, key);
  if (!out->name) return fail(DELTAIC_BAD_FILE, "%s: %s must be a list", file, key);
  if (count && out->left != count)
    return fail(DELTAIC_BAD_FILE, "%s: %s has %llu elements, expected %llu", file, key, (unsigned long long)out->left,
                (unsigned long long)count);
  return DELTAIC_OK;
}

static bool is_text(const struct gguf_element *e) {
  int length = 1;
  for (uint64_t at = 0; e->text && at < e->bytes && length > 0; at += (uint64_t)length)
    length = e->text[at] ? utf8_check(e->text + at, e->bytes - at) : 0;
  return e->text && length > 0;
}

static deltaic_status add_token(const char *file, int64_t id, const struct gguf_element *token, int64_t type,
                                struct tokenizer_parts *out) {
  if (!is_text(token)) return fail(DELTAIC_BAD_FILE, "%s: token %lld is not text", file, (long long)id);
  if (type < TYPE_NORMAL || type > TYPE_BYTE)
    return fail(DELTAIC_BAD_FILE, "%s: token %lld has a type that is not known", file, (long long)id);
  if (type == TYPE_UNUSED) return DELTAIC_OK;
  const bool special = type == TYPE_CONTROL, added = special || type == TYPE_USER;
  out->entries[out->count++] = (struct vocabulary_entry){token->text, token->bytes, id, added, special};
  if (!added) return DELTAIC_OK;
  json_t *entry = json_pack("{s:I, s:s%, s:b, s:b}", "id", (json_int_t)id, "content", token->text, (size_t)token->bytes,
                            "special", special, "normalized", 0);
  return json_array_append_new(json_object_get(out->root, "added_tokens"), entry) ? fail_memory("a tokenizer", 0)
                                                                                  : DELTAIC_OK;
}

static deltaic_status add_tokens(const char *file, const struct gguf *gguf, struct file_view view,
                                 struct tokenizer_parts *out) {
  struct gguf_list tokens, types = {0};
  struct gguf_element token, type = {.number = TYPE_NORMAL};
  deltaic_status status = get_list(file, gguf, KEY "tokens", 0, &tokens);
  if (!status && json_object_get(gguf->keys, KEY "token_type"))
    status = get_list(file, gguf, KEY "token_type", tokens.left, &types);
  if (status) return status;
  out->entries = calloc(tokens.left + 1, sizeof *out->entries);
  if (!out->entries) return fail_memory("a vocabulary", (tokens.left + 1) * sizeof *out->entries);
  for (int64_t id = 0; !status && gguf_next(&tokens, view, &token); id++) {
    gguf_next(&types, view, &type);
    status = add_token(file, id, &token, type.text ? -1 : type.number, out);
  }
  return status;
}

static deltaic_status add_merges(const char *file, const struct gguf *gguf, struct file_view view,
                                 struct tokenizer_parts *out) {
  struct gguf_list list;
  struct gguf_element merge;
  deltaic_status status = get_list(file, gguf, KEY "merges", 0, &list);
  if (status) return status;
  out->merges = calloc(list.left + 1, sizeof *out->merges);
  if (!out->merges) return fail_memory("the merges", (list.left + 1) * sizeof *out->merges);
  for (; gguf_next(&list, view, &merge); out->merge_count++)
    if (!is_text(&merge) || !merge_cut(merge.text, merge.bytes, &out->merges[out->merge_count]))
      return fail(DELTAIC_BAD_FILE, "%s: merge %zu is not a pair of texts", file, out->merge_count);
  return DELTAIC_OK;
}

// The token whose id the key has, as JSON; NULL: the key is absent, or no token has the id.
static json_t *token_of(struct json_reader *r, const struct gguf *gguf, const char *key,
                        const struct tokenizer_parts *parts) {
  const uint64_t count = gguf_list_of(gguf, KEY "tokens").left;
  const int64_t id = json_int(r, gguf->keys, key, -1, 0, count ? (int64_t)count - 1 : 0);
  for (size_t i = 0; id >= 0 && i < parts->count; i++)
    if (parts->entries[i].id == id) return json_stringn(parts->entries[i].text, parts->entries[i].length);
  return NULL;
}

// The tokens before and after a text, as a post-processor; JSON null: none.
static json_t *template_json(struct json_reader *r, const struct gguf *gguf, const struct tokenizer_parts *parts) {
  static const char *const adds[2] = {KEY "add_bos_token", KEY "add_eos_token"};
  static const char *const ids[2] = {KEY "bos_token_id", KEY "eos_token_id"};
  json_t *single = json_array(), *special = json_object();
  for (int i = 0; i < 2; i++) {
    if (i) json_array_append_new(single, json_pack("{s:{s:s}}", "Sequence", "id", "A"));
    json_t *text = json_bool(r, gguf->keys, adds[i], false) ? token_of(r, gguf, ids[i], parts) : NULL;
    if (!text) continue;
    json_array_append_new(single, json_pack("{s:{s:O}}", "SpecialToken", "id", text));
    json_object_set_new_nocheck(special, json_string_value(text),
                                json_pack("{s:[O]}", "ids", json_object_get(gguf->keys, ids[i])));
    json_decref(text);
  }
  if (json_object_size(special))
    return json_pack("{s:s, s:o, s:o}", "type", "TemplateProcessing", "single", single, "special_tokens", special);
  json_decref(single);
  json_decref(special);
  return json_null();
}

deltaic_status gguf_tokenizer_parts(const char *file, const struct gguf *gguf, struct file_view view,
                                    struct tokenizer_parts *out) {
  struct json_reader r = {.file = file};
  const struct pre *pre = NULL;
  *out = (struct tokenizer_parts){0};
  deltaic_status status = find_pre(&r, gguf->keys, &pre);
  if (status) return status;
  json_t *normalizer = pre->nfc ? json_pack("{s:s}", "type", "NFC") : json_null();
  out->root = json_pack("{s:{s:s, s:b}, s:[], s:o, s:{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b}]}, s:{s:s}}",
                        "model", "type", "BPE", "ignore_merges", pre->ignore_merges, "added_tokens", "normalizer",
                        normalizer, "pre_tokenizer", "type", "Sequence", "pretokenizers", "type", "Split", "pattern",
                        "Regex", pre->regex, "behavior", "Isolated", "invert", 0, "type", "ByteLevel",
                        "add_prefix_space", 0, "use_regex", 0, "decoder", "type", "ByteLevel");
  if (!out->root) return fail_memory("a tokenizer", 0);
  status = add_tokens(file, gguf, view, out);
  if (!status) status = add_merges(file, gguf, view, out);
  if (!status && json_object_set_new(out->root, "post_processor", template_json(&r, gguf, out)))
    status = fail_memory("a tokenizer", 0);
  return status ? status : r.status;
}

void tokenizer_parts_free(struct tokenizer_parts *parts) {
  json_decref(parts->root);
  free(parts->entries);
  free(parts->merges);
  *parts = (struct tokenizer_parts){0};
}
