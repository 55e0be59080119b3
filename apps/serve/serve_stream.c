// serve_stream: answers as server-sent events.
#include "serve_reply.h"

#include <stdio.h>
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

// What the two kinds of items have: the thinking is an item before the message, with a summary that is all of it.
static const struct output_kind {
  const char *index, *part_added, *delta, *text_done, *part_done; // index: the field that numbers an item's parts
  json_t *(*item)(const struct call *, const char *status);
  json_t *(*part)(const struct call *);
  const char *parts; // the item's field of its parts
} kinds[] = {
    [OUTPUT_THINKING] = {"summary_index", "response.reasoning_summary_part.added",
                         "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done",
                         "response.reasoning_summary_part.done", reply_thinking, reply_thinking_part, "summary"},
    [OUTPUT_MESSAGE] = {"content_index", "response.content_part.added", "response.output_text.delta",
                        "response.output_text.done", "response.content_part.done", reply_item, reply_part, "content"},
};

static int output_index(const struct call *call) {
  return call->output == OUTPUT_MESSAGE && call->tasks[0].thinking.size ? 1 : 0;
}

// The events of an item's part have these fields.
static json_t *place(const struct call *call) {
  const struct output_kind *kind = &kinds[call->output];
  json_t *item = kind->item(call, "in_progress");
  json_t *out = json_pack("{s:O, s:i, s:i}", "item_id", json_object_get(item, "id"), "output_index", output_index(call),
                          kind->index, 0);
  json_decref(item);
  return out;
}

// An event about the item that is being sent.
static bool item_event(struct call *call, const char *type, json_t *item) {
  return numbered(call, type, json_pack("{s:i, s:o}", "output_index", output_index(call), "item", item));
}

// An event about its part: `name` has the value, which it takes over.
static bool part_event(struct call *call, const char *type, const char *name, json_t *value) {
  json_t *data = place(call);
  json_object_set_new(data, name, value);
  if (call->output == OUTPUT_MESSAGE && strcmp(name, "part") != 0) json_object_set_new(data, "logprobs", json_array());
  return numbered(call, type, data);
}

static bool begin_item(struct call *call) {
  const struct output_kind *kind = &kinds[call->output];
  json_t *part = kind->part(call);
  json_object_set_new(part, "text", json_string(""));
  const bool good = item_event(call, "response.output_item.added", kind->item(call, "in_progress"));
  return part_event(call, kind->part_added, "part", part) && good;
}

static bool end_item(struct call *call, const char *status) {
  const struct output_kind *kind = &kinds[call->output];
  json_t *part = kind->part(call), *item = kind->item(call, status);
  json_array_append(json_object_get(item, kind->parts), part);
  bool good = part_event(call, kind->text_done, "text", json_incref(json_object_get(part, "text")));
  good = part_event(call, kind->part_done, "part", part) && good;
  return item_event(call, "response.output_item.done", item) && good;
}

static bool begin_response(struct call *call) {
  return numbered(call, "response.created", json_pack("{s:o}", "response", reply_response(call, END_NONE))) &&
         numbered(call, "response.in_progress", json_pack("{s:o}", "response", reply_response(call, END_NONE)));
}

// Sends what the item's text has behind *sent. The item before it ends, as it begins.
static bool send_output(struct call *call, enum output output, const struct bytes *text, size_t *sent) {
  if (call->output != output) {
    if (call->output && !end_item(call, "completed")) return false;
    call->output = output;
    if (!begin_item(call)) return false;
  }
  const size_t from = *sent;
  *sent = text->size;
  return from == text->size || part_event(call, kinds[output].delta, "delta", rest(text, from));
}

static bool end_response(struct call *call) {
  struct task *t = &call->tasks[0];
  const char *status = reply_status(t->ending);
  if (call->problem.status) {
    json_t *response = reply_response(call, END_FAILED);
    reply_log(&call->problem);
    json_object_set_new(response, "error",
                        json_pack("{s:s, s:s}", "code", "server_error", "message", call->problem.text));
    return numbered(call, "response.failed", json_pack("{s:o}", "response", response));
  }
  if (!call->output && !send_output(call, OUTPUT_MESSAGE, &t->text, &t->sent_text)) return false; // an empty one
  char type[32];
  snprintf(type, sizeof type, "response.%s", status);
  return end_item(call, status) &&
         numbered(call, type, json_pack("{s:o}", "response", reply_response(call, t->ending)));
}

static bool send_response(struct call *call) {
  struct task *t = &call->tasks[0];
  if (!call->begun && !begin_response(call)) return false;
  if (t->sent_thinking < t->thinking.size && !send_output(call, OUTPUT_THINKING, &t->thinking, &t->sent_thinking))
    return false;
  if (t->sent_text < t->text.size && !send_output(call, OUTPUT_MESSAGE, &t->text, &t->sent_text)) return false;
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
