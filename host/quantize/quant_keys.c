// quant_keys: see quant_keys.h. The keys of a GGUF file are copied, but for those that concern its formats and parts.
// Of a folder, a family that llama.cpp knows gets its keys (quant_qwen.c); any other gets config.json itself.
#include "quant_keys.h"

#include "platform.h"
#include "quant_qwen.h"
#include "text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_text(struct gguf_writer *w, const char *key, const char *text) {
  gguf_key_text(w, key, text, strlen(text));
}

// ---------------------------------------------------------------- of a GGUF file

static void copy_key(void *user, const char *name, const char *bytes, uint64_t count) {
  static const char *const left_out[] = {"general.file_type", "general.quantization_version",
                                         "general.alignment", "split.no",
                                         "split.count",       "split.tensors.count"};
  for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
    if (!strcmp(left_out[i], name)) return;
  gguf_key_bytes(user, bytes, count);
}

static deltaic_status copy_keys(const struct quant *q, struct gguf_writer *w) {
  struct file_view view;
  deltaic_status status = file_map(q->path, &view);
  if (status) return status;
  status = gguf_visit_keys(q->path, view, copy_key, w);
  file_unmap(&view);
  return status;
}

// ---------------------------------------------------------------- of a folder

// A file of the folder as text; view->data is NULL if there is none.
static deltaic_status read_text(const struct quant *q, const char *name, struct file_view *view) {
  *view = (struct file_view){0};
  char *path = path_join(q->path, name);
  if (!path) return DELTAIC_OUT_OF_MEMORY;
  deltaic_status status = file_exists(path) ? file_map(path, view) : DELTAIC_OK;
  for (uint64_t at = 0; at < view->bytes && !status;) {
    const int length = view->data[at] ? utf8_check(view->data + at, view->bytes - at) : 0;
    if (length <= 0) status = fail(DELTAIC_BAD_FILE, "%s: byte %llu is not text", path, (unsigned long long)at + 1);
    at += (uint64_t)length;
  }
  if (status) file_unmap(view);
  free(path);
  return status;
}

static deltaic_status copy_file(const struct quant *q, struct gguf_writer *w, const char *key, const char *name) {
  struct file_view view;
  deltaic_status status = read_text(q, name, &view);
  if (!status && view.data) gguf_key_text(w, key, view.data, view.bytes);
  file_unmap(&view);
  return status;
}

// *out stays NULL if there is no such file.
static deltaic_status read_json(const struct quant *q, const char *name, json_t **out) {
  struct file_view view;
  *out = NULL;
  deltaic_status status = read_text(q, name, &view);
  if (!status && view.data) status = json_parse(name, view.data, view.bytes, out);
  file_unmap(&view);
  return status;
}

// The template of tokenizer_config.json: a text, or of several the one that is called default.
static const char *template_in(const json_t *config) {
  const json_t *found = json_object_get(config, "chat_template"), *item;
  size_t i;
  json_array_foreach(found, i, item) {
    const char *name = json_string_value(json_object_get(item, "name"));
    if (name && !strcmp(name, "default")) return json_string_value(json_object_get(item, "template"));
  }
  return json_string_value(found);
}

static deltaic_status put_template(const struct quant *q, const json_t *config, struct gguf_writer *w) {
  const uint64_t before = w->key_count;
  deltaic_status status = copy_file(q, w, "tokenizer.chat_template", "chat_template.jinja");
  const char *text = template_in(config);
  if (!status && w->key_count == before && text) put_text(w, "tokenizer.chat_template", text);
  return status;
}

// The id of an added token, whose text is `token`, or its member `content`; -1: there is none.
static int64_t id_of(const json_t *tokenizer, const json_t *token) {
  const char *text = json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
  const json_t *item;
  size_t i;
  json_array_foreach(json_object_get(tokenizer, "added_tokens"), i, item) {
    const char *content = json_string_value(json_object_get(item, "content"));
    if (text && content && !strcmp(text, content)) return json_integer_value(json_object_get(item, "id"));
  }
  return -1;
}

static deltaic_status put_ids(const struct quant *q, const json_t *tokenizer, const json_t *config,
                              struct gguf_writer *w) {
  static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"};
  const struct ends *e = &q->spec.generation.ends;
  const int64_t padding = id_of(tokenizer, json_object_get(config, "pad_token"));
  for (uint32_t i = 0; i < e->count && i < 3; i++) gguf_key_u32(w, ends[i], (uint32_t)e->ids[i]);
  if (e->count > 3) {
    json_t *all = json_array();
    for (uint32_t i = 0; i < e->count; i++) json_array_append_new(all, json_integer(e->ids[i]));
    const bool whole = json_array_size(all) == e->count;
    if (whole) gguf_key_list(w, KEY_ENDS, all);
    json_decref(all);
    if (!whole) return fail_memory("end tokens", 0);
  }
  if (q->spec.bos >= 0) gguf_key_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)q->spec.bos);
  if (padding >= 0) gguf_key_u32(w, "tokenizer.ggml.padding_token_id", (uint32_t)padding);
  return DELTAIC_OK;
}

// What is 0 is off, and other programs expect that such a key is missing.
static void put_sampling(const struct generation *g, struct gguf_writer *w) {
  const deltaic_sampling *s = &g->sampling;
  if (!g->has_sampling) return;
  gguf_key_f32(w, "general.sampling.temp", s->temperature);
  if (s->top_k) gguf_key_u32(w, "general.sampling.top_k", s->top_k);
  if (s->top_p > 0) gguf_key_f32(w, "general.sampling.top_p", s->top_p);
  if (s->min_p > 0) gguf_key_f32(w, "general.sampling.min_p", s->min_p);
  if (s->repetition_penalty > 0) gguf_key_f32(w, "general.sampling.penalty_repeat", s->repetition_penalty);
}

static deltaic_status put_family(const struct quant *q, const json_t *tokenizer, const json_t *config,
                                 struct gguf_writer *w) {
  bool whole = false;
  deltaic_status status = DELTAIC_OK;
  quant_family_keys(q, w);
  put_sampling(&q->spec.generation, w);
  if (tokenizer)
    status = quant_tokenizer_keys(q, tokenizer, w, &whole);
  else
    put_text(w, "tokenizer.ggml.model", "none");
  if (!status) status = put_ids(q, tokenizer, config, w);
  return status || !whole ? status : copy_file(q, w, "tokenizer.huggingface.json", "tokenizer.json");
}

// Without generation_config.json, the ends that the folder's other files name.
static deltaic_status put_generation(const struct quant *q, struct gguf_writer *w) {
  const struct ends *e = &q->spec.generation.ends;
  const uint64_t before = w->key_count;
  deltaic_status status = copy_file(q, w, KEY_GENERATION, "generation_config.json");
  if (status || w->key_count != before) return status;
  json_t *ids = json_array();
  for (uint32_t i = 0; i < e->count; i++) json_array_append_new(ids, json_integer(e->ids[i]));
  json_t *config = json_pack("{s:o}", "eos_token_id", ids);
  char *text = config ? json_dumps(config, JSON_COMPACT) : NULL;
  if (text) put_text(w, KEY_GENERATION, text);
  free(text);
  json_decref(config);
  return text ? DELTAIC_OK : fail_memory("a config", 0);
}

static deltaic_status put_config(const struct quant *q, struct gguf_writer *w) {
  deltaic_status status = copy_file(q, w, KEY_CONFIG, "config.json");
  if (!status) status = put_generation(q, w);
  return status ? status : copy_file(q, w, "tokenizer.huggingface.json", "tokenizer.json");
}

static bool is_utf8(const char *text, size_t length) {
  int taken = 1;
  for (size_t i = 0; i < length && taken > 0; i += (size_t)taken) taken = utf8_check(text + i, length - i);
  return taken > 0;
}

static deltaic_status put_folder(const struct quant *q, struct gguf_writer *w) {
  json_t *config = NULL, *tokenizer = NULL;
  size_t length = strlen(q->path), begin;
  while (length > 1 && platform_separator(q->path[length - 1])) length--;
  for (begin = length; begin && !platform_separator(q->path[begin - 1]);) begin--;
  put_text(w, "general.architecture", q->family ? q->family->name : q->spec.architecture);
  if (is_utf8(q->path + begin, length - begin)) gguf_key_text(w, "general.name", q->path + begin, length - begin);
  deltaic_status status = read_json(q, "tokenizer_config.json", &config);
  if (!status && q->family) status = read_json(q, "tokenizer.json", &tokenizer);
  if (!status) status = q->family ? put_family(q, tokenizer, config, w) : put_config(q, w);
  if (!status) status = put_template(q, config, w);
  json_decref(config);
  json_decref(tokenizer);
  return status;
}

deltaic_status quant_write_keys(const struct quant *q, struct gguf_writer *w) {
  deltaic_status status = checkpoint_keys(q->checkpoint) ? copy_keys(q, w) : put_folder(q, w);
  gguf_key_u32(w, "general.file_type", q->type->number);
  gguf_key_u32(w, "general.quantization_version", 2);
  return status ? status : w->status;
}
