// serve_prepare: makes the tasks of a request: finds the turn that it continues, and its state, and encodes what is
// new.
#include "common.h"
#include "serve_batch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { DECODED = 64, LOOK_BACK = 4, MOST_TOKENS = 1 << 24 };

static bool bad(struct problem *p, deltaic_status status) {
  if (!status) return false;
  problem_set(p, status == DELTAIC_OUT_OF_MEMORY ? 500 : 400, "", "", "%s", deltaic_last_error());
  return true;
}

static void no_memory(struct problem *p) { problem_set(p, 500, "", "", "out of memory"); }

static void random_bytes(void *to, size_t bytes) {
  while (getrandom(to, bytes, 0) != (ssize_t)bytes) {
  }
}

void call_make_id(const char *prefix, char id[TURN_ID]) {
  uint8_t bytes[16];
  random_bytes(bytes, sizeof bytes);
  int used = snprintf(id, TURN_ID, "%s", prefix);
  for (size_t i = 0; i < sizeof bytes; ++i) used += snprintf(id + used, TURN_ID - (size_t)used, "%02x", bytes[i]);
}

// ---------------------------------------------------------------- tokens

struct ids {
  int32_t *items;
  size_t count;
};

static bool add_ids(struct ids *to, const int32_t *ids, size_t count, struct problem *p) {
  int32_t *grown = realloc(to->items, (to->count + count) * sizeof *grown + 1);
  if (!grown) {
    no_memory(p);
    return false;
  }
  if (count) memcpy(grown + to->count, ids, count * sizeof *ids);
  to->items = grown;
  to->count += count;
  return true;
}

static bool add_text(const struct server *s, struct ids *to, const char *text, size_t bytes, bool special,
                     struct problem *p) {
  size_t count = 0;
  if (bad(p, deltaic_tokenizer_encode(s->tokenizer, text, bytes, special, NULL, 0, &count))) return false;
  int32_t *ids = malloc(count * sizeof *ids + 1);
  if (!ids) no_memory(p);
  const bool good = ids && !bad(p, deltaic_tokenizer_encode(s->tokenizer, text, bytes, special, ids, count, &count)) &&
                    add_ids(to, ids, count, p);
  free(ids);
  return good;
}

static bool add_tokens(const struct server *s, struct ids *to, const json_t *tokens, struct problem *p) {
  const size_t count = json_array_size(tokens);
  int32_t *ids = malloc(count * sizeof *ids + 1);
  if (!ids) no_memory(p);
  for (size_t i = 0; i < count && !p->status; ++i) {
    const json_int_t value = json_integer_value(json_array_get(tokens, i));
    ids[i] = (int32_t)value;
    if (value >= s->engine.model_info.vocabulary)
      problem_set(p, 400, "prompt", "", "token %lld is not below the vocabulary's %d", (long long)value,
                  s->engine.model_info.vocabulary);
  }
  const bool good = !p->status && add_ids(to, ids, count, p);
  free(ids);
  return good;
}

// ---------------------------------------------------------------- the turn that goes on

// What the tasks of a request begin with.
struct base {
  struct blob *turn_blob, *state;
  struct turn turn;
  size_t cached;
};

static void base_state(const struct server *s, struct base *base) {
  base->cached = 0;
  if (!base->turn.count) return;
  base->state = store_get_state(s->store, base->turn.state, base->turn.count);
  if (base->state) base->cached = base->turn.count;
}

static bool base_find(const struct server *s, const char *key, struct base *base) {
  base->turn_blob = store_key_valid(key) ? store_get(s->store, STORE_TURN, key) : NULL;
  if (!base->turn_blob) return false;
  if (turn_unpack(base->turn_blob, s->engine.model_info.vocabulary, &base->turn)) return true;
  blob_drop(base->turn_blob);
  base->turn_blob = NULL;
  return false;
}

static void base_free(struct base *base) {
  blob_drop(base->turn_blob);
  blob_drop(base->state);
}

// The messages of the turn before come before those of the request, except that instructions hold for one request.
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
    no_memory(p);
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
    no_memory(p);
    return false;
  }
  for (size_t i = 0; i < n; ++i)
    messages[i] = (deltaic_message){r->messages[i].role, r->messages[i].text, r->messages[i].bytes};
  o.size = sizeof o;
  o.thinking = r->thinking;
  deltaic_ids out = {NULL, 0, &count};
  bool good = !bad(p, deltaic_template_encode(s->template, s->tokenizer, messages, n, &o, &out));
  int32_t *ids = good ? malloc(count * sizeof *ids + 1) : NULL;
  out = (deltaic_ids){ids, count, &count};
  if (good && !ids) no_memory(p);
  good = ids && !bad(p, deltaic_template_encode(s->template, s->tokenizer, messages, n, &o, &out)) &&
         add_ids(to, ids, count, p);
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
  if (bad(p, deltaic_template_render(s->template, &last, 1, &o, NULL, 0, &bytes))) return false;
  *text = malloc(bytes + 1);
  if (!*text) {
    no_memory(p);
    return false;
  }
  if (bad(p, deltaic_template_render(s->template, &last, 1, &o, *text, bytes, &bytes))) return false;
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
    keep_key(r->messages, i + 1, NULL, key);
    if (base_find(s, key, base)) return i + 1;
  }
  return 0;
}

static bool prepare_chat(struct server *s, struct call *call, struct base *base, struct ids *ids, struct task *t,
                         char **opening, struct problem *p) {
  struct request *r = &call->request;
  size_t first = 0;
  if (base->turn_blob) {
    const size_t own = r->message_count;
    add_history(r, &base->turn, p);
    first = r->message_count - own;
  } else {
    first = find_conversation(s, r, base);
  }
  if (p->status) return false;
  if (base->turn_blob && (!add_ids(ids, base->turn.tokens, base->turn.count, p) ||
                          !add_ids(ids, base->turn.pending, base->turn.pending_count, p)))
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

// ---------------------------------------------------------------- tasks

static deltaic_sampling sampling_of(const struct server *s, const struct request *r) {
  deltaic_sampling out = s->sampling;
  if (r->given & GIVEN_TEMPERATURE) out.temperature = r->sampling.temperature;
  if (r->given & GIVEN_TOP_P) out.top_p = r->sampling.top_p;
  if (r->given & GIVEN_TOP_K) out.top_k = r->sampling.top_k;
  if (r->given & GIVEN_MIN_P) out.min_p = r->sampling.min_p;
  if (r->given & GIVEN_PENALTY) out.repetition_penalty = r->sampling.repetition_penalty;
  out.seed = r->sampling.seed;
  if (!(r->given & GIVEN_SEED)) random_bytes(&out.seed, sizeof out.seed);
  return out;
}

// The decoder must know the text before: some tokenizers write a word's space only inside a text.
static deltaic_status start_text(const struct server *s, struct task *t, const char *opening) {
  const struct request *r = &t->call->request;
  size_t from = t->prompt_count > DECODED ? t->prompt_count - DECODED : 0;
  if (t->chat) from = t->asked;
  if (r->echo) from = t->own;
  const char *stops[REQUEST_STOPS + 1], *text;
  size_t count = r->stop_count, bytes;
  memcpy(stops, r->stops, count * sizeof *stops);
  if (t->chat && s->chat_end < 0) stops[count++] = s->chat.end;
  deltaic_status status = deltaic_decoder_create(s->tokenizer, true, &t->decoder);
  if (!status) status = deltaic_stops_create(stops, count, &t->stops);
  if (t->score) t->notes = calloc(t->prompt_count - t->own + 1, sizeof *t->notes);
  if (t->score && !t->notes) return DELTAIC_OUT_OF_MEMORY;
  if (t->score) t->note_room = t->prompt_count - t->own;
  for (size_t i = from; i < t->prompt_count && !status; ++i) {
    if (t->score)
      t->notes[i - t->own] = (struct note){.token = t->tokens[i], .text_at = t->text.size, .log_probability = NAN};
    status = deltaic_decoder_push(t->decoder, t->tokens[i], &text, &bytes);
    if (!status && r->echo && !bytes_add(&t->text, text, bytes)) status = DELTAIC_OUT_OF_MEMORY;
  }
  return status ? status : voice_start(t, opening ? opening : "");
}

static void check_length(const struct server *s, struct task *t, struct problem *p) {
  const uint64_t context = batch_context(s->batch);
  const struct request *r = &t->call->request;
  const char *name = r->api == API_CHAT ? "messages" : r->api == API_COMPLETIONS ? "prompt" : "input";
  if (!t->prompt_count) problem_set(p, 400, name, "", "%s has no tokens, and the model none to begin with", name);
  if (t->prompt_count > context)
    problem_set(p, 400, name, "context_length_exceeded", "%s has %zu tokens; the context is %llu", name,
                t->prompt_count, (unsigned long long)context);
  const uint64_t room = context > t->prompt_count ? context - t->prompt_count : 0;
  t->most = r->most < s->options.tokens ? r->most : s->options.tokens;
  if (t->most > room) t->most = (uint32_t)room;
}

// Makes the n tasks of one prompt. ids: their tokens, which the last task takes over.
static void make_tasks(struct call *call, size_t first, struct base *base, struct ids *ids, const struct task *like,
                       const char *opening, struct problem *p) {
  const struct server *s = call->server;
  const struct request *r = &call->request;
  const deltaic_sampling sampling = sampling_of(s, r);
  if (ids->count > MOST_TOKENS / r->n)
    problem_set(p, 400, "n", "", "%zu tokens times n are more than %d", ids->count, MOST_TOKENS);
  for (uint32_t k = 0; k < r->n && !p->status; ++k) {
    struct task *t = &call->tasks[first + k];
    *t = *like;
    t->call = call;
    t->index = (uint32_t)first + k;
    t->slot = -1;
    t->sampling = sampling;
    t->sampling.seed += k;
    t->score = r->echo && r->likely >= 0;
    const bool last = k + 1 == r->n;
    t->tokens = last ? ids->items : malloc(ids->count * sizeof *t->tokens + 1);
    if (!t->tokens) {
      no_memory(p);
      return;
    }
    if (!last) memcpy(t->tokens, ids->items, ids->count * sizeof *t->tokens);
    if (last) ids->items = NULL;
    t->count = t->prompt_count = ids->count;
    t->room = ids->count;
    t->base_count = base->turn.count;
    if (t->base_count) snprintf(t->base_key, sizeof t->base_key, "%s", base->turn.state);
    for (size_t i = 0; i < base->turn.span_count; ++i)
      if (!task_add_span(t, TURN_SPAN_END(base->turn.spans[i]), TURN_SPAN_DRAWN(base->turn.spans[i]))) no_memory(p);
    if (k && !t->score) t->leader = &call->tasks[first];
    t->mark = k ? 0 : like->mark;
    if (base->state && !t->leader) t->state = blob_hold(base->state);
    t->cached = t->leader ? 0 : base->cached;
    check_length(s, t, p);
    if (p->status) return;
    if (bad(p, start_text(s, t, opening))) return;
    if (call->task_count == 1)
      snprintf(t->id, sizeof t->id, "%s", call->id);
    else
      snprintf(t->id, sizeof t->id, "%.50s-%u", call->id, t->index);
  }
  call->prompt_tokens += ids->count;
  call->cached_tokens += base->cached;
}

static void prepare_prompts(struct server *s, struct call *call, struct base *base, struct problem *p) {
  const struct request *r = &call->request;
  base_state(s, base);
  for (size_t i = 0; i < r->prompt_count && !p->status; ++i) {
    const struct prompt *prompt = &r->prompts[i];
    struct task like = {0};
    struct ids ids = {0};
    if (add_ids(&ids, base->turn.tokens, base->turn.count, p))
      add_ids(&ids, base->turn.pending, base->turn.pending_count, p);
    like.own = ids.count;
    if (prompt->tokens)
      add_tokens(s, &ids, prompt->tokens, p);
    else
      add_text(s, &ids, prompt->text, prompt->bytes, !ids.count, p);
    if (!p->status) make_tasks(call, i * r->n, base, &ids, &like, NULL, p);
    free(ids.items);
  }
}

// Messages, or for a model without a template the text of /v1/responses.
static void prepare_messages(struct server *s, struct call *call, struct base *base, struct problem *p) {
  const struct request *r = &call->request;
  struct task like = {0};
  struct ids ids = {0};
  char *opening = NULL;
  if (s->template && !(base->turn_blob && !base->turn.messages_bytes)) {
    prepare_chat(s, call, base, &ids, &like, &opening, p);
  } else if (r->plain) {
    if (add_ids(&ids, base->turn.tokens, base->turn.count, p))
      add_ids(&ids, base->turn.pending, base->turn.pending_count, p);
    like.own = ids.count;
    add_text(s, &ids, r->messages[0].text, r->messages[0].bytes, !ids.count, p);
  } else {
    problem_set(p, 400, r->api == API_CHAT ? "messages" : "input", "unsupported",
                "the model has no chat template that is known; /v1/completions continues texts%s",
                r->api == API_RESPONSES ? ", and so does an input that is one string" : "");
  }
  if (!p->status) base_state(s, base);
  if (!p->status) make_tasks(call, 0, base, &ids, &like, opening, p);
  free(opening);
  free(ids.items);
}

static const char *prefix(enum api api) {
  return api == API_COMPLETIONS ? "cmpl-" : api == API_CHAT ? "chatcmpl-" : "resp_";
}

struct call *call_create(struct server *s, struct request *request, struct problem *p) {
  struct base base = {0};
  struct call *call = calloc(1, sizeof *call);
  if (!call) {
    no_memory(p);
    return NULL;
  }
  pthread_mutex_init(&call->lock, NULL);
  call->holders = 1;
  call->server = s;
  call->request = *request;
  *request = (struct request){0};
  struct request *r = &call->request;
  call->created = time(NULL);
  call->task_count = call->unfinished = (r->prompt_count ? r->prompt_count : 1) * r->n;
  call->tasks = calloc(call->task_count, sizeof *call->tasks);
  call_make_id(prefix(r->api), call->id);
  if (!call->tasks) {
    call->task_count = 0;
    no_memory(p);
  } else if (r->model && strcmp(r->model, s->name) != 0) {
    problem_set(p, 404, "model", "model_not_found", "there is no model \"%.100s\" here; there is \"%.100s\"", r->model,
                s->name);
  } else if (r->previous && !base_find(s, r->previous, &base)) {
    problem_set(p, 404, "previous_response_id", "previous_response_not_found",
                "there is no response \"%.80s\", or it has expired", r->previous);
  }
  if (!p->status && r->api == API_COMPLETIONS) prepare_prompts(s, call, &base, p);
  if (!p->status && r->api != API_COMPLETIONS) prepare_messages(s, call, &base, p);
  base_free(&base);
  request_forget(r);
  if (!p->status) return call;
  call_drop(call);
  return NULL;
}
