// serve_stream: answers as server-sent events.
#include "serve_reply.h"

#include <stdlib.h>
#include <string.h>

// Takes over the JSON.
static bool event(struct call *call, const char *name, json_t *data) {
  char *text = json_dumps(data, JSON_COMPACT);
  bool good = text != NULL;
  if (good && name)
    good = bytes_add(&call->out, "event: ", 7) && bytes_add(&call->out, name, strlen(name)) &&
           bytes_add(&call->out, "\n", 1);
  good = good && bytes_add(&call->out, "data: ", 6) && bytes_add(&call->out, text, strlen(text)) &&
         bytes_add(&call->out, "\n\n", 2);
  free(text);
  json_decref(data);
  return good;
}

static json_t *rest(const struct bytes *text, size_t from) {
  return json_stringn(text->data + from, text->size - from);
}

// ---------------------------------------------------------------- completions and chats

static json_t *chunk(const struct call *call, json_t *choices) {
  return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", call->id, "object",
                   call->request.api == API_CHAT ? "chat.completion.chunk" : "text_completion", "created",
                   (json_int_t)call->created, "model", call->server->name, "choices", choices);
}

static bool send_choice(struct call *call, json_t *choice) {
  return event(call, NULL, chunk(call, json_pack("[o]", choice)));
}

// delta: of a chat; NULL: text of a completion.
static json_t *piece(const struct task *t, json_t *delta, json_t *text, json_t *notes) {
  json_t *out = json_pack("{s:i, s:o, s:n}", "index", (int)t->index, "logprobs", notes, "finish_reason");
  json_object_set_new(out, delta ? "delta" : "text", delta ? delta : text);
  return out;
}

static bool send_task(struct call *call, struct task *t) {
  const bool chat = call->request.api == API_CHAT;
  bool good = true;
  if (chat && !t->sent_begin)
    good = send_choice(call, piece(t, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL, json_null()));
  t->sent_begin = true;
  if (good && t->sent_thinking < t->thinking.size)
    good = send_choice(call, piece(t, json_pack("{s:o}", "reasoning_content", rest(&t->thinking, t->sent_thinking)),
                                   NULL, json_null()));
  t->sent_thinking = t->thinking.size;
  if (good && (t->sent_text < t->text.size || t->sent_notes < t->note_count)) {
    json_t *text = t->text.data ? rest(&t->text, t->sent_text) : json_string("");
    json_t *notes = t->sent_notes < t->note_count ? reply_notes(t, t->sent_notes, t->note_count) : json_null();
    good = send_choice(call,
                       chat ? piece(t, json_pack("{s:o}", "content", text), NULL, notes) : piece(t, NULL, text, notes));
  }
  t->sent_text = t->text.size;
  t->sent_notes = t->note_count;
  if (!good || !t->ending || t->sent_end) return good;
  json_t *last = piece(t, chat ? json_object() : NULL, chat ? NULL : json_string(""), json_null());
  json_object_set_new(last, "finish_reason", json_string(reply_finish(t->ending)));
  if (call->request.store) json_object_set_new(last, "state", json_string(t->id));
  json_object_set_new(last, "timings", reply_timings(t));
  t->sent_end = true;
  return send_choice(call, last);
}

static bool send_end(struct call *call) {
  bool good = true;
  if (call->problem.status) {
    char *text = reply_problem(&call->problem);
    good = text && bytes_add(&call->out, "data: ", 6) && bytes_add(&call->out, text, strlen(text)) &&
           bytes_add(&call->out, "\n\n", 2);
    free(text);
  } else if (call->request.stream_usage) {
    json_t *last = chunk(call, json_array());
    json_object_set_new(last, "usage", reply_usage(call));
    good = event(call, NULL, last);
  }
  return good && bytes_add(&call->out, "data: [DONE]\n\n", 14);
}

// ---------------------------------------------------------------- responses

// An event with its number. data: without type.
static bool numbered(struct call *call, const char *type, json_t *data) {
  json_object_set_new(data, "type", json_string(type));
  json_object_set_new(data, "sequence_number", json_integer((json_int_t)call->events++));
  return event(call, type, data);
}

// The events of the message's text have these fields.
static json_t *place(const struct call *call) {
  json_t *item = reply_item(call, "in_progress");
  json_t *out =
      json_pack("{s:O, s:i, s:i}", "item_id", json_object_get(item, "id"), "output_index", 0, "content_index", 0);
  json_decref(item);
  return out;
}

static bool begin_response(struct call *call) {
  json_t *part = json_pack("{s:s, s:s, s:[], s:[]}", "type", "output_text", "text", "", "annotations", "logprobs");
  json_t *added = place(call);
  json_object_set_new(added, "part", part);
  bool good = numbered(call, "response.created", json_pack("{s:o}", "response", reply_response(call, "in_progress")));
  good = good &&
         numbered(call, "response.in_progress", json_pack("{s:o}", "response", reply_response(call, "in_progress")));
  good = good && numbered(call, "response.output_item.added",
                          json_pack("{s:i, s:o}", "output_index", 0, "item", reply_item(call, "in_progress")));
  if (!good) {
    json_decref(added);
    return false;
  }
  return numbered(call, "response.content_part.added", added);
}

static bool end_response(struct call *call) {
  const enum ending ending = call->tasks[0].ending;
  const bool complete = ending == END_EOS || ending == END_STOP;
  const char *status = complete ? "completed" : "incomplete";
  if (call->problem.status) {
    json_t *response = reply_response(call, "failed");
    json_object_set_new(response, "error",
                        json_pack("{s:s, s:s}", "code", "server_error", "message", call->problem.text));
    return numbered(call, "response.failed", json_pack("{s:o}", "response", response));
  }
  json_t *done = place(call), *part = place(call), *item = reply_item(call, status);
  json_object_set_new(done, "text", reply_text(&call->tasks[0].text));
  json_object_set_new(done, "logprobs", json_array());
  json_object_set_new(part, "part", reply_part(call));
  json_array_append_new(json_object_get(item, "content"), reply_part(call));
  const bool sent[] = {
      numbered(call, "response.output_text.done", done), numbered(call, "response.content_part.done", part),
      numbered(call, "response.output_item.done", json_pack("{s:i, s:o}", "output_index", 0, "item", item)),
      numbered(call, complete ? "response.completed" : "response.incomplete",
               json_pack("{s:o}", "response", reply_response(call, status)))};
  return sent[0] && sent[1] && sent[2] && sent[3];
}

static bool send_response(struct call *call) {
  struct task *t = &call->tasks[0];
  if (!call->begun && !begin_response(call)) return false;
  if (t->sent_text < t->text.size) {
    json_t *delta = place(call);
    json_object_set_new(delta, "delta", rest(&t->text, t->sent_text));
    json_object_set_new(delta, "logprobs", json_array());
    if (!numbered(call, "response.output_text.delta", delta)) return false;
    t->sent_text = t->text.size;
  }
  return call->unfinished || end_response(call);
}

// ---------------------------------------------------------------- both

bool stream_more(struct call *call) {
  bool good = true;
  if (call->request.api == API_RESPONSES) {
    good = send_response(call);
  } else {
    for (size_t i = 0; i < call->task_count && good; ++i)
      if (!call->problem.status) good = send_task(call, &call->tasks[i]);
    if (good && !call->unfinished) good = send_end(call);
  }
  call->begun = true;
  call->ended = !call->unfinished;
  return good;
}
