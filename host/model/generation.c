// generation: reads the end tokens and the sampling that a checkpoint states. See generation.h.
#include "generation.h"

#include "checkpoint.h"
#include "input.h"

#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- ends

bool ends_have(const struct ends *ends, int32_t id) {
  for (uint32_t i = 0; i < ends->count; i++)
    if (ends->ids[i] == id) return true;
  return false;
}

deltaic_status ends_add(struct ends *ends, const char *file, int64_t id) {
  if (id < 0 || ends_have(ends, (int32_t)id)) return DELTAIC_OK;
  if (ends->count == MOST_ENDS)
    return fail(DELTAIC_UNSUPPORTED, "%s: more than %d end tokens are not supported", file, MOST_ENDS);
  ends->ids[ends->count++] = (int32_t)id;
  return DELTAIC_OK;
}

static void read_one(struct json_reader *r, const json_t *object, const char *key, uint32_t V, struct ends *ends) {
  int64_t id = json_int(r, object, key, -1, -1, (int64_t)V - 1);
  if (!r->status) r->status = ends_add(ends, r->file, id);
}

void ends_read(struct json_reader *r, const json_t *object, const char *key, uint32_t V, struct ends *ends) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_array(value)) {
    read_one(r, object, key, V, ends);
    return;
  }
  for (size_t i = 0; i < json_array_size(value) && !r->status; i++) {
    json_t *item = json_pack("{s:O}", key, json_array_get(value, i)); // so that messages name the key
    if (item)
      read_one(r, item, key, V, ends);
    else
      r->status = fail_memory("end tokens", 0);
    json_decref(item);
  }
}

// ---------------------------------------------------------------- generation_config.json

static void read_sampling(struct json_reader *r, const json_t *object, struct generation *out) {
  const bool draws = json_bool(r, object, "do_sample", false);
  deltaic_sampling s = DELTAIC_INIT(deltaic_sampling);
  s.temperature = (float)json_number(r, object, "temperature", 1, 0, 100);
  s.top_k = (uint32_t)json_int(r, object, "top_k", 0, 0, INT32_MAX);
  s.top_p = (float)json_number(r, object, "top_p", 0, 0, 1);
  s.min_p = (float)json_number(r, object, "min_p", 0, 0, 1);
  s.repetition_penalty = (float)json_number(r, object, "repetition_penalty", 0, 0, 100);
  out->has_sampling = json_present(object, "do_sample");
  if (!out->has_sampling) return;
  out->sampling = s;
  if (draws) return;
  out->sampling.temperature = out->sampling.top_p = out->sampling.min_p = 0;
  out->sampling.top_k = 0;
}

deltaic_status generation_parse(const char *file, const char *text, size_t bytes, uint32_t V, struct generation *out) {
  struct json_reader r = {.file = file};
  json_t *object;
  deltaic_status status = json_parse(file, text, bytes, &object);
  if (status) return status;
  if (!json_is_object(object)) r.status = fail(DELTAIC_BAD_FILE, "%s: must be a JSON object", file);
  if (json_object_get(object, "eos_token_id")) out->ends.count = 0;
  ends_read(&r, object, "eos_token_id", V, &out->ends);
  read_sampling(&r, object, out);
  json_decref(object);
  return r.status;
}

// ---------------------------------------------------------------- tokenizer_config.json

// "<|im_end|>", or {"content": "<|im_end|>", ...}. NULL: no end token.
static const char *token_text(const json_t *value) {
  return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

// -1: the file does not list the token.
static int64_t find_in_decoder(const json_t *decoder, const char *token) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)decoder, key, value) {
    const char *text = token_text(value);
    char *end;
    long long id = strtoll(key, &end, 10);
    if (text && !strcmp(text, token) && end != key && !*end && id >= 0) return id;
  }
  return -1;
}

static int64_t find_in_list(const json_t *added, const char *token) {
  for (size_t i = 0; i < json_array_size(added); i++) {
    const json_t *item = json_array_get(added, i), *id = json_object_get(item, "id");
    const char *text = token_text(item);
    if (text && !strcmp(text, token) && json_is_integer(id)) return json_integer_value(id);
  }
  return -1;
}

// *out stays NULL if there is no such file.
static deltaic_status read_file(const deltaic_source *source, const char *folder, const char *name, json_t **out) {
  struct input in;
  bool found;
  *out = NULL;
  char *file = path_join(folder, name);
  if (!file) return DELTAIC_OUT_OF_MEMORY;
  deltaic_status status = input_open_if(source, file, &in, &found);
  if (!status && found) status = json_parse(file, in.view.data, (size_t)in.view.bytes, out);
  input_close(&in);
  free(file);
  return status;
}

// An id that the model cannot make ends nothing, so it is left out. tokenizer.json is read only if
// tokenizer_config.json does not list its added tokens.
static deltaic_status add_tokenizer_end(const deltaic_source *source, const char *folder, uint32_t V,
                                        struct ends *ends) {
  json_t *config, *tokenizer = NULL;
  deltaic_status status = read_file(source, folder, "tokenizer_config.json", &config);
  const char *token = token_text(json_object_get(config, "eos_token"));
  const json_t *decoder = json_object_get(config, "added_tokens_decoder");
  int64_t id = -1;
  if (!status && token && json_is_object(decoder)) id = find_in_decoder(decoder, token);
  if (!status && token && !json_is_object(decoder)) status = read_file(source, folder, "tokenizer.json", &tokenizer);
  if (tokenizer) id = find_in_list(json_object_get(tokenizer, "added_tokens"), token);
  if (!status && id < V) status = ends_add(ends, "tokenizer_config.json", id);
  json_decref(config);
  json_decref(tokenizer);
  return status;
}

deltaic_status generation_read(const deltaic_source *source, const char *folder, uint32_t V, struct generation *out) {
  struct input in;
  bool found;
  char *file = path_join(folder, "generation_config.json");
  if (!file) return DELTAIC_OUT_OF_MEMORY;
  deltaic_status status = input_open_if(source, file, &in, &found);
  if (!status)
    status = found ? generation_parse(file, in.view.data, (size_t)in.view.bytes, V, out)
                   : add_tokenizer_end(source, folder, V, &out->ends);
  input_close(&in);
  free(file);
  return status;
}

// ---------------------------------------------------------------- GGUF

static bool ends_texts(const struct gguf_element *token) {
  static const char *const known[] = {"<|im_end|>", "<|endoftext|>"};
  for (size_t i = 0; token->text && i < sizeof known / sizeof *known; i++)
    if (token->bytes == strlen(known[i]) && !memcmp(token->text, known[i], token->bytes)) return true;
  return false;
}

// As converters copy it from generation_config.json.
static void read_gguf_sampling(struct json_reader *r, const json_t *keys, struct generation *out) {
#define SAMPLING "general.sampling."
  static const char *const any[] = {SAMPLING "temp", SAMPLING "top_k", SAMPLING "top_p", SAMPLING "min_p",
                                    SAMPLING "penalty_repeat"};
  for (size_t i = 0; i < sizeof any / sizeof *any; i++) out->has_sampling |= json_present(keys, any[i]);
  if (!out->has_sampling) return;
  deltaic_sampling s = DELTAIC_INIT(deltaic_sampling);
  s.temperature = (float)json_number(r, keys, any[0], 1, 0, 100);
  s.top_k = (uint32_t)json_int(r, keys, any[1], 0, 0, INT32_MAX);
  s.top_p = (float)json_number(r, keys, any[2], 0, 0, 1);
  s.min_p = (float)json_number(r, keys, any[3], 0, 0, 1);
  s.repetition_penalty = (float)json_number(r, keys, any[4], 0, 0, 100);
  out->sampling = s;
#undef SAMPLING
}

deltaic_status generation_of_gguf(const struct checkpoint *c, uint32_t V, struct generation *out) {
  static const char *const ids[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                    "tokenizer.ggml.eom_token_id", KEY_ENDS};
  enum { CONTROL = 3 };
  const json_t *keys = checkpoint_keys(c);
  struct json_reader r = {.file = checkpoint_path(c)};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) ends_read(&r, keys, ids[i], V, &out->ends);
  struct gguf_list tokens = checkpoint_list(c, "tokenizer.ggml.tokens");
  struct gguf_list types = checkpoint_list(c, "tokenizer.ggml.token_type");
  struct gguf_element token, type;
  for (uint32_t i = 0; i < V && !r.status; i++) {
    if (!checkpoint_next(c, &tokens, &token) || !checkpoint_next(c, &types, &type)) break;
    if (type.number == CONTROL && ends_texts(&token)) r.status = ends_add(&out->ends, r.file, i);
  }
  if (!r.status) read_gguf_sampling(&r, keys, out);
  return r.status;
}
