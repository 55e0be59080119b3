// serve_history: the turn that a request continues, and its conversation as tokens.
#include "serve_batch.h"
#include "serve_prepare.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_BACK = 4 };

// ---------------------------------------------------------------- the turn

void base_state(const struct server *s, struct base *base) {
  base->in_slot = false;
  if (!base->turn.count) return;
  const char *key = base->turn.state;
  base->in_slot = !store_in_memory(s->store, STORE_STATE, key) && batch_has_state(s->batch, key);
  if (base->in_slot) return;
  base->state = store_get_state(s->store, key, base->turn.count);
}

enum store_found base_find(const struct server *s, const char *key, struct base *base) {
  base->turn_blob = NULL;
  const enum store_found found =
      store_key_valid(key) ? store_get(s->store, STORE_TURN, key, &base->turn_blob) : STORE_ABSENT;
  if (found != STORE_FOUND) return found;
  if (turn_unpack(base->turn_blob, s->engine.model_info.vocabulary, &base->turn)) return STORE_FOUND;
  blob_drop(base->turn_blob);
  base->turn_blob = NULL;
  return STORE_ABSENT;
}

void base_free(struct base *base) {
  blob_drop(base->turn_blob);
  blob_drop(base->state);
}

// The messages of the turn before come before those of the request.
static void add_history(struct request *r, const struct turn *turn, struct problem *p) {
  json_error_t error;
  if (!turn->messages_bytes) return;
  json_t *list = json_loadb(turn->messages, turn->messages_bytes, JSON_ALLOW_NUL, &error);
  const size_t own = r->message_count;
  request_messages(r, list, "previous_response_id", p);
  json_decref(list);
  if (p->status) return;
  // They were added behind: rotate.
  const size_t earlier = r->message_count - own;
  struct message *turned = malloc(r->message_count * sizeof *turned);
  if (!turned) {
    prepare_no_memory(p);
    return;
  }
  memcpy(turned, r->messages + own, earlier * sizeof *turned);
  memcpy(turned + earlier, r->messages, own * sizeof *turned);
  memcpy(r->messages, turned, r->message_count * sizeof *turned);
  free(turned);
}

// ---------------------------------------------------------------- chats

static bool encode_chat(const struct server *s, const struct request *r, deltaic_render_options o, struct ids *to,
                        struct problem *p) {
  const size_t n = r->message_count;
  size_t count = 0;
  deltaic_message *messages = malloc(n * sizeof *messages + 1);
  if (!messages) {
    prepare_no_memory(p);
    return false;
  }
  for (size_t i = 0; i < n; ++i)
    messages[i] = (deltaic_message){r->messages[i].role, r->messages[i].text, r->messages[i].bytes};
  o.size = sizeof o;
  o.thinking = r->thinking;
  deltaic_ids out = {NULL, 0, &count};
  bool good = !prepare_failed(p, deltaic_template_encode(s->template, s->tokenizer, messages, n, &o, &out));
  int32_t *ids = good ? malloc(count * sizeof *ids + 1) : NULL;
  out = (deltaic_ids){ids, count, &count};
  if (good && !ids) prepare_no_memory(p);
  good = ids && !prepare_failed(p, deltaic_template_encode(s->template, s->tokenizer, messages, n, &o, &out)) &&
         ids_add(to, ids, count, p);
  free(ids);
  free(messages);
  return good;
}

// The answer's beginning as text: what the template adds to info.answer.
static bool opening_text(const struct server *s, const struct request *r, char **text, struct problem *p) {
  const deltaic_message last = {r->messages[r->message_count - 1].role, r->messages[r->message_count - 1].text,
                                r->messages[r->message_count - 1].bytes};
  deltaic_render_options o = DELTAIC_INIT(deltaic_render_options);
  size_t bytes = 0, head = strlen(s->chat.answer);
  o.first = 1;
  o.answer = true;
  o.thinking = r->thinking;
  if (prepare_failed(p, deltaic_template_render(s->template, &last, 1, &o, NULL, 0, &bytes))) return false;
  *text = malloc(bytes + 1);
  if (!*text) {
    prepare_no_memory(p);
    return false;
  }
  if (prepare_failed(p, deltaic_template_render(s->template, &last, 1, &o, *text, bytes, &bytes))) return false;
  (*text)[bytes] = 0;
  memmove(*text, *text + (head < bytes ? head : bytes), (head < bytes ? bytes - head : 0) + 1);
  return true;
}

// A conversation that a client sends again: the turn of its last answer that is known. Returns the messages it has.
static size_t find_conversation(const struct server *s, const struct request *r, struct base *base) {
  int tries = 0;
  for (size_t i = r->message_count; i-- && tries < LOOK_BACK;) {
    char key[STORE_KEY];
    if (r->messages[i].role != DELTAIC_ROLE_ASSISTANT) continue;
    ++tries;
    keep_key(s, r->messages, i + 1, NULL, key);
    if (base_find(s, key, base) == STORE_FOUND) return i + 1;
  }
  return 0;
}

// Whether the template takes these messages, of which a system message is not the first.
static bool may_follow(const struct server *s, const struct request *r) {
  struct problem none = {0};
  struct ids ids = {0};
  const bool good = encode_chat(s, r, (deltaic_render_options){.first = r->message_count - 1}, &ids, &none);
  free(ids.items);
  return good;
}

// Moves the request's instructions to the beginning, where they replace those of an earlier request.
static void instruct_first(struct request *r, size_t at) {
  struct message *m = r->messages;
  const struct message instructions = m[at];
  const bool replaces = m[0].role == DELTAIC_ROLE_SYSTEM;
  if (replaces) free(m[0].text);
  memmove(m + 1, m + replaces, (at - replaces) * sizeof *m);
  m[0] = instructions;
  if (!replaces) return;
  memmove(m + at, m + at + 1, (r->message_count - at - 1) * sizeof *m);
  --r->message_count;
}

// Whether the conversation is read again from its first message: the earlier turn has another template, or new
// instructions belong at the beginning.
static bool read_again(const struct server *s, struct request *r, const struct turn *turn, size_t earlier) {
  const bool other = strcmp(turn->template, s->chat.name) != 0, first = r->instructed && !may_follow(s, r);
  if (first) instruct_first(r, earlier);
  return other || first;
}

bool prepare_chat(struct server *s, struct call *call, struct base *base, struct ids *ids, struct task *t,
                  char **opening, struct problem *p) {
  struct request *r = &call->request;
  size_t first = 0;
  if (base->turn_blob) {
    const size_t own = r->message_count;
    add_history(r, &base->turn, p);
    first = r->message_count - own;
    if (!p->status && read_again(s, r, &base->turn, first)) {
      base_free(base);
      *base = (struct base){0};
      first = 0;
    }
  } else {
    first = find_conversation(s, r, base);
  }
  if (p->status) return false;
  if (base->turn_blob && (!ids_add(ids, base->turn.tokens, base->turn.count, p) ||
                          !ids_add(ids, base->turn.pending, base->turn.pending_count, p)))
    return false;
  t->own = ids->count;
  if (!encode_chat(s, r, (deltaic_render_options){.first = first}, ids, p)) return false;
  t->asked = ids->count;
  if ((s->chat.drops_thinking || s->chat_end < 0) && r->store) t->mark = t->asked;
  if (!encode_chat(s, r, (deltaic_render_options){.first = r->message_count, .answer = true}, ids, p)) return false;
  t->chat = true;
  t->may_think = s->chat.thinking_on;
  return opening_text(s, r, opening, p);
}
