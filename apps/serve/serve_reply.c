// serve_reply: whole answers, and the parts that streams have too.
#include "serve_reply.h"
#include "common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *reply_text(const struct bytes *text) { return json_stringn(text->data ? text->data : "", text->size); }

void reply_log(const struct problem *p) {
  if (p->status == 500) complain(EXIT_OK, "a request failed: %s", p->text);
}

char *reply_problem(const struct problem *p) {
  reply_log(p);
  const char *type = p->status == 401   ? "authentication_error"
                     : p->status == 429 ? "rate_limit_exceeded"
                     : p->status >= 500 ? "server_error"
                                        : "invalid_request_error";
  json_t *error =
      json_pack("{s:{s:s, s:s, s:o, s:o}}", "error", "message", p->text, "type", type, "param",
                *p->param ? json_string(p->param) : json_null(), "code", *p->code ? json_string(p->code) : json_null());
  char *text = json_dumps(error, JSON_COMPACT);
  json_decref(error);
  return text;
}

struct reply reply_json(unsigned status, char *text) {
  static const struct problem no_memory = {.status = 500, .text = "out of memory"};
  if (!text) reply_log(&no_memory);
  if (!text) return (struct reply){.status = 500, .type = "application/json"};
  return (struct reply){status, "application/json", text, strlen(text), 0};
}

struct reply reply_refuse(const struct problem *problem) {
  struct reply out = reply_json((unsigned)problem->status, reply_problem(problem));
  if (problem->status == 503) out.retry = 1;
  return out;
}

const char *reply_finish(enum ending ending) {
  switch (ending) {
  case END_LENGTH: return "length";
  case END_SHUTDOWN: return "shutdown";
  case END_EOS:
  case END_STOP: return "stop";
  default: return "error";
  }
}

// ---------------------------------------------------------------- figures

static json_int_t made(const struct call *call) {
  json_int_t sum = 0;
  for (size_t i = 0; i < call->task_count; ++i) sum += call->tasks[i].made;
  return sum;
}

static json_int_t thought(const struct call *call) {
  json_int_t sum = 0;
  for (size_t i = 0; i < call->task_count; ++i) sum += call->tasks[i].thought_tokens;
  return sum;
}

json_t *reply_usage(const struct call *call) {
  const json_int_t in = (json_int_t)call->prompt_tokens, out = made(call), cached = (json_int_t)call->cached_tokens;
  const bool response = call->request.api == API_RESPONSES;
  return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", response ? "input_tokens" : "prompt_tokens", in,
                   response ? "input_tokens_details" : "prompt_tokens_details", "cached_tokens", cached,
                   response ? "output_tokens" : "completion_tokens", out,
                   response ? "output_tokens_details" : "completion_tokens_details", "reasoning_tokens", thought(call),
                   "total_tokens", in + out);
}

json_t *reply_timings(const struct task *t) {
  const double seconds = t->last - t->first;
  return json_pack("{s:f, s:f, s:I}", "first_token_seconds", t->first > 0 ? t->first - t->queued : 0.0,
                   "tokens_per_second", t->made > 1 && seconds > 0 ? (t->made - 1) / seconds : 0.0, "state_bytes",
                   (json_int_t)t->state_bytes);
}

// ---------------------------------------------------------------- probabilities

enum { TOKEN_BYTES = 512 };

// A token's text by itself; bytes that form no character become U+FFFD.
static json_t *token_text(const struct task *t, int32_t token) {
  const struct server *s = t->call->server;
  char text[TOKEN_BYTES];
  size_t bytes = 0;
  if (deltaic_tokenizer_decode(s->tokenizer, &token, 1, false, text, sizeof text, &bytes)) bytes = 0;
  json_t *string = json_stringn(text, bytes);
  return string ? string : json_string("\xef\xbf\xbd");
}

static json_t *log_probability(float value) {
  if (isnan(value)) return json_null();
  return json_real(isfinite(value) ? value : -9999);
}

static json_t *completion_notes(const struct task *t, size_t from, size_t to) {
  json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *offsets = json_array();
  for (size_t i = from; i < to; ++i) {
    const struct note *n = &t->notes[i];
    json_t *top = isnan(n->log_probability) ? json_null() : json_object();
    json_array_append_new(tokens, token_text(t, n->token));
    json_array_append_new(values, log_probability(n->log_probability));
    json_array_append_new(offsets, json_integer((json_int_t)n->text_at));
    for (int k = 0; k < n->count && json_is_object(top); ++k) {
      json_t *text = token_text(t, n->likely[k].token);
      if (!json_object_get(top, json_string_value(text)))
        json_object_set_new(top, json_string_value(text), log_probability(n->likely[k].log_probability));
      json_decref(text);
    }
    json_array_append_new(tops, top);
  }
  return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops,
                   "text_offset", offsets);
}

static json_t *chat_note(const struct task *t, int32_t token, float value) {
  json_t *bytes = json_array();
  char own[TOKEN_BYTES];
  size_t count = 0;
  if (deltaic_tokenizer_token_bytes(t->call->server->tokenizer, token, own, sizeof own, &count)) count = 0;
  for (size_t i = 0; i < count; ++i) json_array_append_new(bytes, json_integer((uint8_t)own[i]));
  return json_pack("{s:o, s:o, s:o}", "token", token_text(t, token), "logprob", log_probability(value), "bytes", bytes);
}

static json_t *chat_notes(const struct task *t, size_t from, size_t to) {
  json_t *content = json_array();
  for (size_t i = from; i < to; ++i) {
    const struct note *n = &t->notes[i];
    json_t *note = chat_note(t, n->token, n->log_probability), *tops = json_array();
    for (int k = 0; k < n->count; ++k)
      json_array_append_new(tops, chat_note(t, n->likely[k].token, n->likely[k].log_probability));
    json_object_set_new(note, "top_logprobs", tops);
    json_array_append_new(content, note);
  }
  return json_pack("{s:o, s:n}", "content", content, "refusal");
}

json_t *reply_notes(const struct task *t, size_t from, size_t to) {
  if (t->call->request.likely < 0) return json_null();
  return t->call->request.api == API_COMPLETIONS ? completion_notes(t, from, to) : chat_notes(t, from, to);
}

// ---------------------------------------------------------------- completions and chats

static json_t *choice(const struct task *t) {
  json_t *out =
      json_pack("{s:i, s:o, s:s, s:s, s:o}", "index", (int)t->index, "logprobs", reply_notes(t, 0, t->note_count),
                "finish_reason", reply_finish(t->ending), "state", t->id, "timings", reply_timings(t));
  if (!t->call->request.store) json_object_del(out, "state");
  if (t->call->request.api == API_COMPLETIONS) {
    json_object_set_new(out, "text", reply_text(&t->text));
    return out;
  }
  json_t *message = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", reply_text(&t->text), "refusal");
  if (t->thinking.size) json_object_set_new(message, "reasoning_content", reply_text(&t->thinking));
  json_object_set_new(out, "message", message);
  return out;
}

// ---------------------------------------------------------------- responses

json_t *reply_part(const struct call *call) {
  return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", reply_text(&call->tasks[0].text),
                   "annotations", "logprobs");
}

json_t *reply_item(const struct call *call, const char *status) {
  char id[TURN_ID + 8] = "msg_";
  strncat(id, call->id + strlen("resp_"), TURN_ID);
  json_t *item = json_pack("{s:s, s:s, s:s, s:s, s:[]}", "type", "message", "id", id, "status", status, "role",
                           "assistant", "content");
  return item;
}

json_t *reply_thinking_part(const struct call *call) {
  return json_pack("{s:s, s:o}", "type", "summary_text", "text", reply_text(&call->tasks[0].thinking));
}

json_t *reply_thinking(const struct call *call, const char *status) {
  char id[TURN_ID + 8] = "rs_";
  strncat(id, call->id + strlen("resp_"), TURN_ID);
  return json_pack("{s:s, s:s, s:s, s:[]}", "type", "reasoning", "id", id, "status", status, "summary");
}

bool reply_says(const struct call *call) { return call->tasks[0].text.size || !call->tasks[0].thinking.size; }

// The items of the output: the thinking, and the message.
static json_t *output(const struct call *call, const char *status) {
  json_t *out = json_array();
  if (call->tasks[0].thinking.size) {
    json_t *item = reply_thinking(call, reply_says(call) ? "completed" : status);
    json_array_append_new(json_object_get(item, "summary"), reply_thinking_part(call));
    json_array_append_new(out, item);
  }
  if (reply_says(call)) {
    json_t *item = reply_item(call, status);
    json_array_append_new(json_object_get(item, "content"), reply_part(call));
    json_array_append_new(out, item);
  }
  return out;
}

static json_t *or_null(const json_t *root, const char *name) {
  json_t *value = json_object_get(root, name);
  return value ? json_incref(value) : json_null();
}

const char *reply_status(enum ending ending) {
  switch (ending) {
  case END_NONE: return "in_progress";
  case END_FAILED: return "failed";
  case END_EOS:
  case END_STOP: return "completed";
  default: return "incomplete";
  }
}

json_t *reply_response(const struct call *call, enum ending ending) {
  const struct task *t = &call->tasks[0];
  const json_t *root = call->request.root;
  const char *status = reply_status(ending);
  const bool done = ending != END_NONE && ending != END_FAILED, incomplete = done && !strcmp(status, "incomplete");
  json_t *out =
      json_pack("{s:s, s:s, s:I, s:s, s:n, s:s, s:[], s:b, s:[], s:s, s:s, s:{s:{s:s}}, s:{s:n, s:n}}", "id", call->id,
                "object", "response", "created_at", (json_int_t)call->created, "status", status, "error", "model",
                call->server->name, "output", "parallel_tool_calls", 1, "tools", "tool_choice", "auto", "truncation",
                "disabled", "text", "format", "type", "text", "reasoning", "effort", "summary");
  json_object_set_new(out, "store", json_boolean(call->request.store));
  json_object_set_new(out, "temperature", json_real(t->sampling.temperature));
  json_object_set_new(out, "top_p", json_real(t->sampling.top_p > 0 ? t->sampling.top_p : 1));
  json_object_set_new(out, "instructions", or_null(root, "instructions"));
  json_object_set_new(out, "max_output_tokens", or_null(root, "max_output_tokens"));
  json_object_set_new(out, "previous_response_id", or_null(root, "previous_response_id"));
  json_object_set_new(out, "user", or_null(root, "user"));
  json_t *metadata = json_object_get(root, "metadata");
  json_object_set_new(out, "metadata", metadata ? json_incref(metadata) : json_object());
  json_object_set_new(
      out, "incomplete_details",
      incomplete ? json_pack("{s:s}", "reason", ending == END_LENGTH ? "max_output_tokens" : reply_finish(ending))
                 : json_null());
  json_object_set_new(out, "usage", done ? reply_usage(call) : json_null());
  if (!done) return out;
  json_object_set_new(out, "output", output(call, status));
  json_object_set_new(out, "timings", reply_timings(t));
  return out;
}

// ---------------------------------------------------------------- all of it

char *reply_call(struct call *call) {
  const struct request *r = &call->request;
  json_t *out;
  if (r->api == API_RESPONSES) {
    out = reply_response(call, call->tasks[0].ending);
  } else {
    char fingerprint[32];
    json_t *choices = json_array();
    snprintf(fingerprint, sizeof fingerprint, "fp_%016llx",
             (unsigned long long)call->server->engine.model_info.fingerprint);
    for (size_t i = 0; i < call->task_count; ++i) json_array_append_new(choices, choice(&call->tasks[i]));
    out = json_pack("{s:s, s:s, s:I, s:s, s:s, s:o, s:o}", "id", call->id, "object",
                    r->api == API_CHAT ? "chat.completion" : "text_completion", "created", (json_int_t)call->created,
                    "model", call->server->name, "system_fingerprint", fingerprint, "choices", choices, "usage",
                    reply_usage(call));
  }
  char *text = json_dumps(out, JSON_COMPACT);
  json_decref(out);
  return text;
}
