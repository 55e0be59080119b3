// serve_request: reads JSON into struct request. Fields that would change the answer and are not supported are refused;
// unknown fields are ignored, as clients send fields of their own.
#include "serve_request.h"
#include "serve_fields.h"

#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- JSON

// Jansson recurses, so the depth is bounded before it reads.
static bool deep(const char *body, size_t bytes) {
  int depth = 0;
  for (size_t i = 0; i < bytes; ++i) {
    const char c = body[i];
    if (c == '"') {
      while (++i < bytes && body[i] != '"') i += body[i] == '\\';
    } else if (c == '[' || c == '{') {
      if (++depth > REQUEST_DEPTH) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

json_t *request_json(const char *body, size_t bytes, struct problem *p) {
  json_error_t error;
  if (deep(body, bytes)) {
    problem_set(p, 400, "", "", "the body's JSON is nested deeper than %d levels", REQUEST_DEPTH);
    return NULL;
  }
  json_t *root = json_loadb(body, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (root && json_is_object(root)) return root;
  if (root)
    problem_set(p, 400, "", "", "the body is JSON, but not an object");
  else
    problem_set(p, 400, "", "", "the body is not JSON: line %d, column %d: %.150s", error.line, error.column,
                error.text);
  json_decref(root);
  return NULL;
}

// ---------------------------------------------------------------- prompts

static bool is_tokens(const json_t *value) {
  size_t i;
  const json_t *token;
  if (!json_is_array(value) || !json_array_size(value)) return false;
  json_array_foreach(value, i, token) {
    if (!json_is_integer(token) || json_integer_value(token) < 0 || json_integer_value(token) > INT32_MAX) return false;
  }
  return true;
}

static void add_prompt(struct request *r, const json_t *value, struct problem *p) {
  struct prompt *prompt = &r->prompts[r->prompt_count];
  if (json_is_string(value))
    *prompt = (struct prompt){.text = json_string_value(value), .bytes = json_string_length(value)};
  else if (is_tokens(value))
    *prompt = (struct prompt){.tokens = value};
  else
    problem_set(p, 400, "prompt", "", "prompt takes a string, a list of strings, or one or several lists of tokens");
  ++r->prompt_count;
}

static void read_prompts(struct request *r, struct problem *p) {
  const json_t *value = json_object_get(r->root, "prompt");
  const bool many = json_is_array(value) && !json_is_integer(json_array_get(value, 0));
  const size_t count = many ? json_array_size(value) : 1;
  if (!value) problem_set(p, 400, "prompt", "missing_required_parameter", "there is no prompt");
  if (many && !count) problem_set(p, 400, "prompt", "", "prompt is an empty list");
  if (count > REQUEST_PROMPTS)
    problem_set(p, 400, "prompt", "", "prompt has %zu texts; %d are the most", count, REQUEST_PROMPTS);
  if (p->status) return;
  r->prompts = calloc(count, sizeof *r->prompts);
  if (!r->prompts) problem_set(p, 500, "", "", "out of memory");
  for (size_t i = 0; i < count && !p->status; ++i) add_prompt(r, many ? json_array_get(value, i) : value, p);
}

// ---------------------------------------------------------------- messages

static void add_text(struct message *m, const json_t *text, struct problem *p) {
  const size_t more = json_string_length(text);
  char *grown = realloc(m->text, m->bytes + more + 1);
  if (!grown) {
    problem_set(p, 500, "", "", "out of memory");
    return;
  }
  memcpy(grown + m->bytes, json_string_value(text), more);
  m->text = grown;
  m->bytes += more;
  m->text[m->bytes] = 0;
}

// content: a string, or parts of type text, input_text or output_text, which are joined.
static void read_content(struct message *m, const json_t *content, const char *param, struct problem *p) {
  size_t i;
  const json_t *part;
  if (json_is_string(content)) {
    add_text(m, content, p);
    return;
  }
  if (!json_is_array(content)) {
    problem_set(p, 400, param, "", "%s: a message's content takes a string or a list of parts", param);
    return;
  }
  json_array_foreach(content, i, part) {
    const char *type = field_string(part, "type");
    if (!type || (strcmp(type, "text") != 0 && strcmp(type, "input_text") != 0 && strcmp(type, "output_text") != 0))
      problem_set(p, 400, param, "unsupported", "%s: a part of type \"%.40s\" is not supported; text is", param,
                  type ? type : "");
    else if (!json_is_string(json_object_get(part, "text")))
      problem_set(p, 400, param, "", "%s: a part of text has no string \"text\"", param);
    else
      add_text(m, json_object_get(part, "text"), p);
  }
}

static void read_message(struct request *r, const json_t *item, const char *param, struct problem *p) {
  const char *role = field_string(item, "role"), *type = field_string(item, "type");
  struct message *m = &r->messages[r->message_count];
  *m = (struct message){0};
  if (r->api == API_RESPONSES && type && !strcmp(type, "reasoning")) return; // earlier thinking, which templates drop
  if (!json_is_object(item) || (type && strcmp(type, "message") != 0)) {
    problem_set(p, 400, param, "unsupported", "%s: an item of type \"%.40s\" is not supported; messages are", param,
                type ? type : "");
    return;
  }
  if (role && (!strcmp(role, "system") || !strcmp(role, "developer")))
    m->role = DELTAIC_ROLE_SYSTEM;
  else if (role && !strcmp(role, "user"))
    m->role = DELTAIC_ROLE_USER;
  else if (role && !strcmp(role, "assistant"))
    m->role = DELTAIC_ROLE_ASSISTANT;
  else
    problem_set(p, 400, param, "unsupported", "%s: the role \"%.40s\" is not supported; system, user and assistant are",
                param, role ? role : "");
  if (json_array_size(json_object_get(item, "tool_calls")))
    problem_set(p, 400, param, "unsupported", "%s: tool calls are not supported", param);
  if (p->status) return;
  m->text = calloc(1, 1);
  if (!m->text) {
    problem_set(p, 500, "", "", "out of memory");
    return;
  }
  ++r->message_count;
  read_content(m, json_object_get(item, "content"), param, p);
}

void request_messages(struct request *r, const json_t *array, const char *param, struct problem *p) {
  const size_t count = json_array_size(array);
  size_t i;
  const json_t *item;
  if (!json_is_array(array) || !count) problem_set(p, 400, param, "", "%s takes a list of at least one message", param);
  if (count > REQUEST_MESSAGES - r->message_count)
    problem_set(p, 400, param, "", "%s: %d messages are the most", param, REQUEST_MESSAGES);
  if (p->status) return;
  struct message *grown = realloc(r->messages, (r->message_count + count + 1) * sizeof *grown);
  if (!grown) {
    problem_set(p, 500, "", "", "out of memory");
    return;
  }
  r->messages = grown;
  json_array_foreach(array, i, item) {
    if (!p->status) read_message(r, item, param, p);
  }
  if (r->message_count == r->instructed) problem_set(p, 400, param, "", "%s has no message", param);
}

static void read_input(struct request *r, struct problem *p) {
  json_t *input = json_object_get(r->root, "input"), *instructions = json_object_get(r->root, "instructions");
  json_t *made = json_array();
  r->plain = json_is_string(input);
  if (instructions && !json_is_null(instructions)) {
    if (!json_is_string(instructions)) problem_set(p, 400, "instructions", "", "instructions takes a string");
    r->plain = false;
    r->instructed = true;
    json_array_append_new(made, json_pack("{s:s, s:O}", "role", "system", "content", instructions));
  }
  if (!input) problem_set(p, 400, "input", "missing_required_parameter", "there is no input");
  if (json_is_string(input))
    json_array_append_new(made, json_pack("{s:s, s:O}", "role", "user", "content", input));
  else if (json_is_array(input) && json_array_size(input))
    json_array_extend(made, input);
  else
    problem_set(p, 400, "input", "", "input takes a string or a list of messages");
  if (!p->status) request_messages(r, made, "input", p);
  json_decref(made);
}

// ---------------------------------------------------------------- the rest

// -1, with which clients of vLLM say that there is no limit.
static bool unlimited(const json_t *root, const char *name) {
  const json_t *value = json_object_get(root, name);
  return json_is_integer(value) && json_integer_value(value) == -1;
}

static void read_sampling(struct request *r, struct problem *p) {
  deltaic_sampling *s = &r->sampling;
  uint64_t top_k = 0;
  *s = DELTAIC_INIT(deltaic_sampling);
  if (field_number(r->root, "temperature", 100, &s->temperature, p)) r->given |= GIVEN_TEMPERATURE;
  if (field_number(r->root, "top_p", 1, &s->top_p, p)) r->given |= GIVEN_TOP_P;
  if (field_number(r->root, "min_p", 1, &s->min_p, p)) r->given |= GIVEN_MIN_P;
  if (field_number(r->root, "repetition_penalty", 100, &s->repetition_penalty, p)) r->given |= GIVEN_PENALTY;
  if (unlimited(r->root, "top_k") || field_count(r->root, "top_k", UINT32_MAX, &top_k, p)) r->given |= GIVEN_TOP_K;
  if (field_count(r->root, "seed", INT64_MAX, &s->seed, p)) r->given |= GIVEN_SEED;
  s->top_k = (uint32_t)top_k;
}

static void read_stops(struct request *r, struct problem *p) {
  const json_t *stop = json_object_get(r->root, "stop");
  const size_t count = json_is_array(stop) ? json_array_size(stop) : stop && !json_is_null(stop);
  if (count > REQUEST_STOPS) problem_set(p, 400, "stop", "", "stop has more than %d strings", REQUEST_STOPS);
  for (size_t i = 0; i < count && !p->status; ++i) {
    const json_t *text = json_is_array(stop) ? json_array_get(stop, i) : stop;
    const size_t bytes = json_string_length(text);
    if (!json_is_string(text) || !bytes || bytes > 4096 || strlen(json_string_value(text)) != bytes)
      problem_set(p, 400, "stop", "", "stop takes strings of 1 to 4096 bytes without a NUL");
    else
      r->stops[r->stop_count++] = json_string_value(text);
  }
}

static void read_likely(struct request *r, struct problem *p) {
  uint64_t likely = 0;
  bool wanted = false;
  r->likely = -1;
  if (r->api == API_COMPLETIONS) {
    if (field_count(r->root, "logprobs", REQUEST_LIKELY, &likely, p)) r->likely = (int)likely;
    return;
  }
  if (r->api == API_RESPONSES) {
    if (field_count(r->root, "top_logprobs", 0, &likely, p)) return;
    return;
  }
  field_flag(r->root, "logprobs", &wanted, p);
  if (field_count(r->root, "top_logprobs", REQUEST_LIKELY, &likely, p) && likely && !wanted)
    problem_set(p, 400, "top_logprobs", "", "top_logprobs needs \"logprobs\": true");
  if (wanted) r->likely = (int)likely;
}

// False: the request does not say how many tokens an answer may have.
static bool read_limit(struct request *r, const char *name, uint64_t *most, struct problem *p) {
  if (!unlimited(r->root, name)) return field_count(r->root, name, UINT32_MAX - 1, most, p);
  *most = UINT32_MAX;
  return true;
}

static void read_most(struct request *r, struct problem *p) {
  uint64_t most = r->api == API_COMPLETIONS ? 16 : UINT32_MAX;
  if (r->api == API_RESPONSES)
    read_limit(r, "max_output_tokens", &most, p);
  else if (r->api == API_COMPLETIONS || !read_limit(r, "max_completion_tokens", &most, p))
    read_limit(r, "max_tokens", &most, p);
  if (!most && r->api != API_COMPLETIONS)
    problem_set(p, 400, r->api == API_CHAT ? "max_tokens" : "max_output_tokens", "",
                "an answer has at least one token");
  r->most = (uint32_t)most;
}

static void read_thinking(struct request *r, struct problem *p) {
  const json_t *words = json_object_get(r->root, "chat_template_kwargs");
  bool thinks = false;
  const char *effort = r->api == API_CHAT ? field_string(r->root, "reasoning_effort")
                                          : field_string(json_object_get(r->root, "reasoning"), "effort");
  if (effort && !strcmp(effort, "none")) r->thinking = DELTAIC_THINKING_OFF;
  if (json_is_object(words) && field_flag(words, "enable_thinking", &thinks, p))
    r->thinking = thinks ? DELTAIC_THINKING_ON : DELTAIC_THINKING_OFF;
}

static void read_all(struct request *r, struct problem *p) {
  uint64_t n = 1;
  r->model = field_text(r->root, "model", p);
  r->previous = field_text(r->root, "previous_response_id", p);
  r->store = true;
  field_text(r->root, "user", p);
  field_metadata(r->root, "metadata", p);
  field_flag(r->root, "store", &r->store, p);
  field_flag(r->root, "stream", &r->stream, p);
  field_flag(r->root, "ignore_eos", &r->ignore_eos, p);
  field_flag(json_object_get(r->root, "stream_options"), "include_usage", &r->stream_usage, p);
  if (r->api == API_COMPLETIONS) field_flag(r->root, "echo", &r->echo, p);
  if (r->api != API_RESPONSES) field_count(r->root, "n", REQUEST_CHOICES, &n, p);
  if (!n) problem_set(p, 400, "n", "", "n takes 1 to %d", REQUEST_CHOICES);
  r->n = (uint32_t)n;
  read_sampling(r, p);
  read_stops(r, p);
  read_likely(r, p);
  read_most(r, p);
  if (r->api != API_COMPLETIONS) read_thinking(r, p);
  fields_refuse(r->api, r->root, r->n, p);
  if (r->api == API_COMPLETIONS) read_prompts(r, p);
  if (r->api == API_CHAT) request_messages(r, json_object_get(r->root, "messages"), "messages", p);
  if (r->api == API_RESPONSES) read_input(r, p);
  if (r->prompt_count * r->n > REQUEST_TEXTS)
    problem_set(p, 400, "n", "", "%zu prompts times n are more than %d texts", r->prompt_count, REQUEST_TEXTS);
}

bool request_read(enum api api, const char *body, size_t bytes, struct request *out, struct problem *problem) {
  *out = (struct request){.api = api};
  *problem = (struct problem){0};
  out->root = request_json(body, bytes, problem);
  if (out->root) read_all(out, problem);
  if (problem->status) request_free(out);
  return !problem->status;
}

void request_forget(struct request *request) {
  enum { POINTED = 3 };
  // Those that the request points to, and behind them those that the answer of /v1/responses repeats.
  static const char *const names[] = {"model", "previous_response_id", "stop", "instructions", "max_output_tokens",
                                      "metadata", "user"};
  const size_t kept = request->api == API_RESPONSES ? sizeof names / sizeof *names : POINTED;
  const char *name;
  json_t *value;
  void *next;
  json_object_foreach_safe(request->root, next, name, value) {
    size_t i = 0;
    while (i < kept && strcmp(name, names[i]) != 0) ++i;
    if (i == kept) json_object_del(request->root, name);
  }
  free(request->prompts);
  request->prompts = NULL;
  request->prompt_count = 0;
}

void request_free(struct request *request) {
  for (size_t i = 0; i < request->message_count; ++i) free(request->messages[i].text);
  free(request->messages);
  free(request->prompts);
  json_decref(request->root);
  *request = (struct request){0};
}
