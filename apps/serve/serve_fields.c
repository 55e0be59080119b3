// serve_fields: reads single fields, and refuses those that are not supported.
#include "serve_fields.h"
#include "eval_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// A sentence quotes what a request has, and may cut it within a character. JSON takes characters only.
static void make_characters(char *text) {
  const size_t bytes = strlen(text);
  for (size_t at; (at = utf8_error(text, bytes)) < bytes;) text[at] = '?';
}

void problem_set(struct problem *p, int status, const char *param, const char *code, const char *format, ...) {
  if (p->status) return;
  p->status = status;
  snprintf(p->param, sizeof p->param, "%s", param);
  snprintf(p->code, sizeof p->code, "%s", code);
  va_list args;
  va_start(args, format);
  vsnprintf(p->text, sizeof p->text, format, args);
  va_end(args);
  make_characters(p->text);
}

static const json_t *present(const json_t *object, const char *name) {
  const json_t *value = json_object_get(object, name);
  return json_is_null(value) ? NULL : value;
}

const char *field_string(const json_t *object, const char *name) {
  return json_string_value(json_object_get(object, name));
}

const char *field_text(const json_t *object, const char *name, struct problem *p) {
  const json_t *value = present(object, name);
  const char *text = json_string_value(value);
  if (value && (!text || strlen(text) != json_string_length(value)))
    problem_set(p, 400, name, "", "%s takes a string without a NUL", name);
  return text;
}

bool field_flag(const json_t *object, const char *name, bool *out, struct problem *p) {
  const json_t *value = present(object, name);
  if (!value) return false;
  if (!json_is_boolean(value)) problem_set(p, 400, name, "", "%s takes true or false", name);
  *out = json_is_true(value);
  return true;
}

bool field_count(const json_t *object, const char *name, uint64_t most, uint64_t *out, struct problem *p) {
  const json_t *value = present(object, name);
  if (!value) return false;
  const json_int_t count = json_integer_value(value);
  if (json_is_integer(value) && count >= 0 && (uint64_t)count <= most)
    *out = (uint64_t)count;
  else
    problem_set(p, 400, name, "", "%s takes a whole number from 0 to %llu", name, (unsigned long long)most);
  return true;
}

bool field_number(const json_t *object, const char *name, double most, float *out, struct problem *p) {
  const json_t *value = present(object, name);
  if (!value) return false;
  const double number = json_number_value(value);
  if (json_is_number(value) && number >= 0 && number <= most)
    *out = (float)number;
  else
    problem_set(p, 400, name, "", "%s takes a number from 0 to %g", name, most);
  return true;
}

void field_metadata(const json_t *object, const char *name, struct problem *p) {
  enum { LABELS = 16, LABEL_BYTES = 512 };
  json_t *labels = json_object_get(object, name), *value;
  const char *key;
  bool good = !labels || json_is_null(labels) || (json_is_object(labels) && json_object_size(labels) <= LABELS);
  json_object_foreach(labels, key, value) {
    if (!json_is_string(value) || json_string_length(value) > LABEL_BYTES) good = false;
  }
  if (!good)
    problem_set(p, 400, name, "", "%s takes an object of at most %d strings of at most %d bytes", name, LABELS,
                LABEL_BYTES);
}

// Whether the field asks for nothing: absent, 0, false, "" or empty.
static bool asks_nothing(const json_t *value) {
  if (!value || json_is_false(value)) return true;
  if (json_is_number(value)) return json_number_value(value) == 0;
  if (json_is_string(value)) return !json_string_length(value);
  return (json_is_array(value) && !json_array_size(value)) || (json_is_object(value) && !json_object_size(value));
}

static void refuse_format(const json_t *format, const char *param, struct problem *p) {
  const char *type = field_string(format, "type");
  if (format && !json_is_null(format) && (!type || strcmp(type, "text") != 0))
    problem_set(p, 400, param, "unsupported", "%s: only the format \"text\" is supported, not \"%.40s\"", param,
                type ? type : "");
}

static void refuse_modalities(const json_t *modalities, struct problem *p) {
  size_t i;
  const json_t *item;
  json_array_foreach(modalities, i, item) {
    const char *name = json_string_value(item);
    if (!name || strcmp(name, "text") != 0)
      problem_set(p, 400, "modalities", "unsupported", "modalities: only \"text\" is supported");
  }
}

// A model without tools may be asked to use none of them.
static void refuse_choice(const json_t *root, const char *name, struct problem *p) {
  const char *choice = field_string(root, name);
  if (present(root, name) && (!choice || (strcmp(choice, "none") != 0 && strcmp(choice, "auto") != 0)))
    problem_set(p, 400, name, "unsupported", "%s takes \"none\" or \"auto\": tools are not supported", name);
}

static void refuse_included(const json_t *list, struct problem *p) {
  size_t i;
  const json_t *item;
  json_array_foreach(list, i, item) {
    const char *name = json_string_value(item);
    if (name && strstr(name, "logprobs"))
      problem_set(p, 400, "include", "unsupported", "include: %.80s is not supported; /v1/completions has logprobs",
                  name);
  }
}

void fields_refuse(enum api api, const json_t *root, uint32_t n, struct problem *p) {
  static const char *const names[] = {
      "tools", "functions",  "frequency_penalty", "presence_penalty", "logit_bias",        "suffix",
      "audio", "background", "prediction",        "conversation",     "web_search_options"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (!asks_nothing(present(root, names[i])))
      problem_set(p, 400, names[i], "unsupported", "%s is not supported%s", names[i],
                  strstr(names[i], "penalty") ? "; repetition_penalty is" : "");
  const json_t *best = present(root, "best_of");
  if (best && json_integer_value(best) != (json_int_t)n)
    problem_set(p, 400, "best_of", "unsupported", "best_of is not supported unless it equals n");
  refuse_format(json_object_get(root, "response_format"), "response_format", p);
  refuse_format(json_object_get(json_object_get(root, "text"), "format"), "text.format", p);
  refuse_choice(root, "tool_choice", p);
  refuse_choice(root, "function_call", p);
  refuse_included(json_object_get(root, "include"), p);
  refuse_modalities(json_object_get(root, "modalities"), p);
  if (api == API_RESPONSES && present(root, "prompt"))
    problem_set(p, 400, "prompt", "unsupported", "stored prompts are not supported; input takes the text");
}
