// chat_api: the public functions of chat templates: finding a checkpoint's template, and conversations as text and as
// ids.
#include "chat_template.h"

#include "file.h"
#include "gguf.h"
#include "json.h"
#include "option_structs.h"

// ---------------------------------------------------------------- finding

// "chatml, qwen2.5, ..."
static const char *names(char *text, size_t capacity) {
  size_t used = 0;
  text[0] = 0;
  for (size_t i = 0; deltaic_template_at(i) && used < capacity; i++)
    used += (size_t)snprintf(text + used, capacity - used, "%s%s", i ? ", " : "", deltaic_template_at(i)->name);
  return text;
}

deltaic_status deltaic_template_find(const char *name, const deltaic_template **out) {
  char list[512];
  if (refuse_null("deltaic_template_find", "name,out", name, out)) return DELTAIC_INVALID_ARGUMENT;
  const deltaic_template *found = chat_template_find(name);
  if (!found)
    return fail(DELTAIC_NOT_FOUND, "there is no chat template \"%.100s\"; known are: %s", name,
                names(list, sizeof list));
  *out = found;
  return DELTAIC_OK;
}

deltaic_status deltaic_template_recognize(const char *file, const char *text, size_t bytes,
                                          const deltaic_template **out) {
  if (refuse_null("deltaic_template_recognize", "file,text,out", file, FILLED(text, bytes), out))
    return DELTAIC_INVALID_ARGUMENT;
  const deltaic_template *found = chat_template_recognize(text ? text : "", bytes);
  if (!found)
    return fail(DELTAIC_UNSUPPORTED, "%s: its chat template is none of the published ones that are known", file);
  *out = found;
  return DELTAIC_OK;
}

// The text of tokenizer_config.json's chat_template, which may be a list of templates with names.
static const char *config_template(const json_t *config) {
  const json_t *value = json_object_get(config, "chat_template");
  if (!json_is_array(value)) return json_string_value(value);
  for (size_t i = 0; i < json_array_size(value); i++) {
    const json_t *item = json_array_get(value, i);
    const char *name = json_string_value(json_object_get(item, "name"));
    if (name && !strcmp(name, "default")) return json_string_value(json_object_get(item, "template"));
  }
  return NULL;
}

static deltaic_status read_config(const char *file, const struct file_view *view, const deltaic_template **out) {
  json_t *config;
  deltaic_status status = json_parse(file, view->data, (size_t)view->bytes, &config);
  if (status) return status;
  const char *text = config_template(config);
  status = text ? deltaic_template_recognize(file, text, strlen(text), out)
                : fail(DELTAIC_NOT_FOUND, "%s: has no chat template", file);
  json_decref(config);
  return status;
}

// *found: the file exists.
static deltaic_status read_from(const char *folder, const char *name, bool json, bool *found,
                                const deltaic_template **out) {
  struct file_view view;
  char *file = path_join(folder, name);
  if (!file) return DELTAIC_OUT_OF_MEMORY;
  deltaic_status status = DELTAIC_OK;
  *found = file_exists(file);
  if (*found) status = file_map(file, &view);
  if (*found && !status) {
    status = json ? read_config(file, &view, out) : deltaic_template_recognize(file, view.data, view.bytes, out);
    file_unmap(&view);
  }
  free(file);
  return status;
}

static deltaic_status read_gguf(const char *path, const deltaic_template **out) {
  struct json_reader r = {.file = path};
  struct input in;
  struct gguf gguf;
  deltaic_status status = gguf_open_keys(NULL, path, &in, &gguf);
  const char *text = status ? NULL : json_text(&r, gguf.keys, "tokenizer.chat_template", NULL);
  if (!status) status = r.status;
  if (!status)
    status = text ? deltaic_template_recognize(path, text, strlen(text), out)
                  : fail(DELTAIC_NOT_FOUND, "%s: has no chat template", path);
  gguf_free(&gguf);
  input_close(&in);
  return status;
}

deltaic_status deltaic_template_read(const char *path, const deltaic_template **out) {
  bool found;
  if (refuse_null("deltaic_template_read", "path,out", path, out)) return DELTAIC_INVALID_ARGUMENT;
  if (gguf_is_file(path)) return read_gguf(path, out);
  deltaic_status status = read_from(path, "chat_template.jinja", false, &found, out);
  if (!found && !status) status = read_from(path, "tokenizer_config.json", true, &found, out);
  return found || status ? status : fail(DELTAIC_NOT_FOUND, "%s: has no chat template", path);
}

void deltaic_template_get_info(const deltaic_template *t, deltaic_template_info *info) {
  if (!info) return;
  *info = (deltaic_template_info){.name = "", .models = "", .answer = "", .end = ""};
  if (!t) return;
  *info = (deltaic_template_info){.name = t->name,
                                  .models = t->models,
                                  .answer = t->start[DELTAIC_ROLE_ASSISTANT],
                                  .end = t->end,
                                  .thinks = t->thinks,
                                  .thinking_on = t->think != NULL,
                                  .thinking_off = !t->think || t->no_think,
                                  .drops_thinking = t->drops_thinking};
}

// ---------------------------------------------------------------- rendering

static deltaic_status check_messages(const deltaic_message *messages, size_t n, const deltaic_render_options *o) {
  if (!n) return fail(DELTAIC_INVALID_ARGUMENT, "a conversation needs a message");
  if (o->first > n) return fail(DELTAIC_INVALID_ARGUMENT, "the first message is %zu of %zu", o->first, n);
  if ((unsigned)o->thinking > DELTAIC_THINKING_OFF)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_render_options: thinking is %d", (int)o->thinking);
  for (size_t i = 0; i < n; i++) {
    const deltaic_message *m = &messages[i];
    if ((unsigned)m->role > DELTAIC_ROLE_ASSISTANT || (!m->text && m->bytes))
      return fail(DELTAIC_INVALID_ARGUMENT, "message %zu has no such role, or no text", i + 1);
    for (size_t at = 0; at < m->bytes;) {
      int length = utf8_check(m->text + at, m->bytes - at);
      if (length <= 0) return fail(DELTAIC_INVALID_ARGUMENT, "byte %zu of message %zu is not UTF-8", at + 1, i + 1);
      at += (size_t)length;
    }
  }
  return DELTAIC_OK;
}

static deltaic_status lay_out(const deltaic_template *t, const deltaic_message *messages, size_t n,
                              const deltaic_render_options *options, struct chat_parts *out) {
  deltaic_render_options o;
  deltaic_status status = options_read(&o, sizeof o, options, "deltaic_render_options");
  if (!status) status = check_messages(messages, n, &o);
  return status ? status : chat_template_parts(t, messages, n, &o, out);
}

deltaic_status deltaic_template_render(const deltaic_template *t, const deltaic_message *messages, size_t n,
                                       const deltaic_render_options *options, char *text, size_t capacity,
                                       size_t *bytes) {
  struct chat_parts parts = {0};
  size_t total = 0;
  if (refuse_null("deltaic_template_render", "chat,messages,text", t, FILLED(messages, n), FILLED(text, capacity)))
    return DELTAIC_INVALID_ARGUMENT;
  deltaic_status status = lay_out(t, messages, n, options, &parts);
  for (size_t i = 0; i < parts.count; i++) total += parts.items[i].bytes;
  if (!status && bytes) *bytes = total;
  if (!status && text && total > capacity)
    status = fail(DELTAIC_BUFFER_TOO_SMALL, "the text has %zu bytes, the buffer room for %zu", total, capacity);
  for (size_t i = 0; i < parts.count && text && !status; i++) {
    memcpy(text, parts.items[i].text, parts.items[i].bytes);
    text += parts.items[i].bytes;
  }
  free(parts.items);
  return status;
}

deltaic_status deltaic_template_encode(const deltaic_template *t, const deltaic_tokenizer *tokenizer,
                                       const deltaic_message *messages, size_t n, const deltaic_render_options *options,
                                       const deltaic_ids *out) {
  struct chat_parts parts = {0};
  struct ids ids = {0};
  if (refuse_null("deltaic_template_encode", "chat,tokenizer,messages,out,out->ids,out->count", t, tokenizer,
                  FILLED(messages, n), out, out ? FILLED(out->ids, out->capacity) : NULL, out ? out->count : NULL))
    return DELTAIC_INVALID_ARGUMENT;
  deltaic_status status = lay_out(t, messages, n, options, &parts);
  const bool begins = !status && (!options || !options->first); // else it continues a text
  if (!status) status = tokenizer_encode_parts(tokenizer, &parts, begins, &ids);
  if (!status) *out->count = ids.count;
  if (!status && out->ids && ids.count > out->capacity)
    status = fail(DELTAIC_BUFFER_TOO_SMALL, "the conversation has %zu tokens, the buffer room for %zu", ids.count,
                  out->capacity);
  if (!status && out->ids && ids.count) memcpy(out->ids, ids.items, ids.count * sizeof *ids.items);
  free(parts.items);
  free(ids.items);
  return status;
}
