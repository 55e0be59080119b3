// serve_keep: what is kept of a finished text: its turn, and a state. What a template makes of an answer once another
// question follows may differ from what the model said: without its thinking, or cut at a stop string. Then the state
// before the answer is kept, and the answer as the template has it waits to be read with the next question.
#include "serve_reply.h"
#include "sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The key of the state at the end, or behind the question.
void keep_state_key(const struct task *t, bool asked, char key[STORE_KEY]) {
  snprintf(key, STORE_KEY, asked ? "%s-q" : "%s", t->id);
}

const char *keep_before(const struct task *t) {
  const bool grows = t->call->server->engine.model_info.grows;
  return grows && t->base_count && t->cached == t->base_count ? t->base_key : NULL;
}

void keep_state(struct task *t, bool asked, struct blob *state) {
  char key[STORE_KEY];
  keep_state_key(t, asked, key);
  store_put_after(t->call->server->store, key, keep_before(t), state);
}

static bool whole(const struct task *t, enum ending ending) {
  const struct server *s = t->call->server;
  if (!t->chat) return true;
  if (s->chat.drops_thinking || s->chat_end < 0 || ending == END_STOP) return false;
  return ending != END_EOS || t->tokens[t->count - 1] == s->chat_end;
}

bool keep_needs_state(const struct task *t, enum ending ending) { return whole(t, ending); }

// ---------------------------------------------------------------- keys of conversations

static void hash_text(struct sha256 *hash, const char *text, size_t bytes) {
  const uint64_t size = bytes;
  sha256_add(hash, &size, sizeof size);
  sha256_add(hash, text, bytes);
}

// The template is part of the key: a store may have states that another one made of the same messages.
void keep_key(const struct server *s, const struct message *messages, size_t count, const char *answer,
              char key[STORE_KEY]) {
  struct sha256 hash;
  sha256_begin(&hash);
  hash_text(&hash, s->chat.name, strlen(s->chat.name));
  for (size_t i = 0; i < count; ++i) {
    const uint8_t role = (uint8_t)messages[i].role;
    sha256_add(&hash, &role, 1);
    hash_text(&hash, messages[i].text, messages[i].bytes);
  }
  if (answer) {
    const uint8_t role = DELTAIC_ROLE_ASSISTANT;
    sha256_add(&hash, &role, 1);
    hash_text(&hash, answer, strlen(answer));
  }
  memcpy(key, "chat-", 5);
  sha256_end(&hash, key + 5);
}

// ---------------------------------------------------------------- the turn

// The answer as the template has it once another question follows.
static bool history(const struct task *t, const struct bytes *answer, int32_t **ids, size_t *count) {
  const struct server *s = t->call->server;
  const struct request *r = &t->call->request;
  const size_t n = r->message_count;
  deltaic_message *messages = calloc(n + 1, sizeof *messages);
  deltaic_render_options o = DELTAIC_INIT(deltaic_render_options);
  o.first = n;
  o.earlier = true;
  o.thinking = r->thinking;
  *count = 0;
  *ids = NULL;
  for (size_t i = 0; messages && i < n; ++i)
    messages[i] = (deltaic_message){r->messages[i].role, r->messages[i].text, r->messages[i].bytes};
  if (messages) messages[n] = (deltaic_message){DELTAIC_ROLE_ASSISTANT, answer->data ? answer->data : "", answer->size};
  deltaic_ids out = {NULL, 0, count};
  bool good = messages && !deltaic_template_encode(s->template, s->tokenizer, messages, n + 1, &o, &out);
  if (good) *ids = malloc(*count * sizeof **ids + 1);
  out = (deltaic_ids){*ids, *count, count};
  good = good && *ids && !deltaic_template_encode(s->template, s->tokenizer, messages, n + 1, &o, &out);
  free(messages);
  return good;
}

// Index behind the last of these ids that is `id`; 0: none is.
static size_t behind_last(const int32_t *ids, size_t count, int32_t id) {
  while (count && ids[count - 1] != id) --count;
  return count;
}

static void put(const struct task *t, const char *key, struct turn turn) {
  turn.spans = t->spans;
  while (turn.span_count < t->span_count && TURN_SPAN_END(t->spans[turn.span_count]) <= turn.count) ++turn.span_count;
  struct blob *blob = turn_pack(&turn);
  if (blob) store_put(t->call->server->store, STORE_TURN, key, blob);
  blob_drop(blob);
}

// The conversation with the answer, as JSON.
static char *conversation(const struct task *t) {
  static const char *const roles[] = {"system", "user", "assistant"};
  const struct request *r = &t->call->request;
  json_t *list = json_array();
  for (size_t i = 0; i < r->message_count; ++i)
    json_array_append_new(list, json_pack("{s:s, s:o}", "role", roles[r->messages[i].role], "content",
                                          json_stringn(r->messages[i].text, r->messages[i].bytes)));
  json_array_append_new(list, json_pack("{s:s, s:o}", "role", "assistant", "content",
                                        json_stringn(t->all.data ? t->all.data : "", t->all.size)));
  char *text = json_dumps(list, JSON_COMPACT);
  json_decref(list);
  return text;
}

// Keeps the turn under the key. after: what history() says; all: the state at the end is that of the conversation.
static void put_chat(const struct task *t, const char *key, struct turn turn, bool all, const int32_t *after,
                     size_t count) {
  const int32_t end = t->call->server->chat_end;
  const size_t behind = end < 0 ? 0 : behind_last(after, count, end);
  char state[STORE_KEY];
  size_t from = 0;
  keep_state_key(t, !(all && behind), state);
  turn.state = state;
  if (all && behind) {
    turn.count = t->count;
    from = t->tokens[t->count - 1] == end ? behind : behind - 1;
  } else if (t->marked) {
    turn.count = t->mark;
  } else {
    turn.count = t->base_count;
    turn.state = t->base_key;
  }
  const size_t asked = turn.count < t->asked ? t->asked - turn.count : 0;
  int32_t *pending = malloc((asked + count - from) * sizeof *pending + 1);
  if (!pending) return;
  memcpy(pending, t->tokens + turn.count, asked * sizeof *pending);
  memcpy(pending + asked, after + from, (count - from) * sizeof *pending);
  turn.pending = pending;
  turn.pending_count = asked + count - from;
  put(t, key, turn);
  free(pending);
}

// Under the answer's id the turn has what the model said. A client that sends the conversation again sends the answer
// without its thinking.
static void keep_chat(const struct task *t, enum ending ending) {
  const struct request *r = &t->call->request;
  int32_t *said = NULL, *sent = NULL;
  size_t said_count, sent_count;
  char key[STORE_KEY], *messages = conversation(t);
  if (messages && history(t, &t->all, &said, &said_count) && history(t, &t->text, &sent, &sent_count)) {
    struct turn turn = {.tokens = t->tokens,
                        .messages = messages,
                        .messages_bytes = strlen(messages),
                        .alias = key,
                        .template = t->call->server->chat.name};
    const bool same = said_count == sent_count && !memcmp(said, sent, said_count * sizeof *said);
    keep_key(t->call->server, r->messages, r->message_count, t->text.data ? t->text.data : "", key);
    put_chat(t, t->id, turn, whole(t, ending), said, said_count);
    turn.alias = "";
    put_chat(t, key, turn, same && whole(t, ending), sent, sent_count);
  }
  free(messages);
  free(said);
  free(sent);
}

void keep_response_key(const char *id, char key[STORE_KEY]) { snprintf(key, STORE_KEY, "%s-r", id); }

// What GET /v1/responses/ID answers.
static void keep_response(const struct task *t, enum ending ending) {
  char key[STORE_KEY];
  json_t *response = reply_response(t->call, ending);
  char *text = json_dumps(response, JSON_COMPACT);
  struct blob *blob = text ? blob_take(text, strlen(text)) : NULL;
  keep_response_key(t->id, key);
  if (blob) store_put(t->call->server->store, STORE_TURN, key, blob);
  blob_drop(blob);
  json_decref(response);
}

void keep_turn(struct task *t, enum ending ending) {
  if (t->call->request.api == API_RESPONSES) keep_response(t, ending);
  if (t->chat) {
    keep_chat(t, ending);
    return;
  }
  const struct turn turn = {.tokens = t->tokens,
                            .count = t->count,
                            .pending = t->tokens,
                            .state = t->id,
                            .messages = "",
                            .alias = "",
                            .template = ""};
  put(t, t->id, turn);
}
