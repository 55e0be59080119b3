// serve_prepare: makes the tasks of a request.
#include "serve_prepare.h"
#include "common.h"
#include "serve_batch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { DECODED = 64, MOST_TOKENS = 1 << 24 };

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
      t->notes[i - t->own] =
          (struct note){.token = t->tokens[i], .text_at = task_characters(t), .log_probability = NAN};
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

// Memory of a text: its tokens, and what is noted of each, which the answer repeats as JSON.
static size_t task_bytes(const struct task *t) {
  enum { TOLD = 500, LIKELY_TOLD = 330 }; // measured, for a token and for each of its alternatives
  const struct request *r = &t->call->request;
  const size_t note = r->likely < 0 ? 0 : sizeof(struct note) + TOLD + LIKELY_TOLD * (size_t)r->likely;
  const size_t noted = (t->score ? t->prompt_count - t->own : 0) + t->most;
  return t->prompt_count * sizeof *t->tokens + noted * note;
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
    t->slot = t->aside = -1;
    t->sampling = sampling;
    t->sampling.seed += k;
    t->score = r->echo && r->likely >= 0;
    t->count = t->prompt_count = ids->count;
    t->room = ids->count;
    check_length(s, t, p);
    if (p->status || !call_take(call, task_bytes(t), p)) return;
    const bool last = k + 1 == r->n;
    t->tokens = last ? ids->items : malloc(ids->count * sizeof *t->tokens + 1);
    if (!t->tokens) {
      prepare_no_memory(p);
      return;
    }
    if (!last) memcpy(t->tokens, ids->items, ids->count * sizeof *t->tokens);
    if (last) ids->items = NULL;
    t->base_count = base->turn.count;
    if (t->base_count) snprintf(t->base_key, sizeof t->base_key, "%s", base->turn.state);
    if (k && !t->score) t->leader = &call->tasks[first]; // a text that is scored reads its own prompt
    t->in_slot = base->in_slot && !t->leader;
    for (size_t i = 0; i < base->turn.span_count; ++i)
      if (!task_add_span(t, TURN_SPAN_END(base->turn.spans[i]), TURN_SPAN_DRAWN(base->turn.spans[i])))
        prepare_no_memory(p);
    t->mark = k ? 0 : like->mark;
    if (base->state && !t->leader) task_set_base_state(t, base->state);
    if (p->status) return;
    if (prepare_failed(p, start_text(s, t, opening))) return;
    if (r->echo && !call_take(call, t->text.room, p)) return;
    if (call->task_count == 1)
      snprintf(t->id, sizeof t->id, "%s", call->id);
    else
      snprintf(t->id, sizeof t->id, "%.50s-%u", call->id, t->index);
  }
  call->prompt_tokens += ids->count;
}

static void prepare_prompts(struct server *s, struct call *call, struct base *base, struct problem *p) {
  const struct request *r = &call->request;
  base_state(s, base);
  for (size_t i = 0; i < r->prompt_count && !p->status; ++i) {
    const struct prompt *prompt = &r->prompts[i];
    struct task like = {0};
    struct ids ids = {0};
    if (ids_add(&ids, base->turn.tokens, base->turn.count, p))
      ids_add(&ids, base->turn.pending, base->turn.pending_count, p);
    like.own = ids.count;
    if (prompt->tokens)
      ids_add_tokens(s, &ids, prompt->tokens, p);
    else
      ids_add_text(s, &ids, prompt->text, prompt->bytes, !ids.count, p);
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
  } else if (base->turn_blob && base->turn.messages_bytes) {
    problem_set(p, 400, "previous_response_id", "unsupported",
                "the response was written with the chat template %.40s, but this server has none", base->turn.template);
  } else if (r->plain) {
    if (ids_add(&ids, base->turn.tokens, base->turn.count, p))
      ids_add(&ids, base->turn.pending, base->turn.pending_count, p);
    like.own = ids.count;
    ids_add_text(s, &ids, r->messages[0].text, r->messages[0].bytes, !ids.count, p);
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

struct call *call_create(struct server *s, struct request *request, size_t *taken, struct problem *p) {
  struct base base = {0};
  struct call *call = calloc(1, sizeof *call);
  if (!call) {
    prepare_no_memory(p);
    return NULL;
  }
  pthread_mutex_init(&call->lock, NULL);
  call->holders = 1;
  call->server = s;
  call->request = *request;
  *request = (struct request){0};
  call->taken = *taken;
  *taken = 0;
  struct request *r = &call->request;
  call->created = time(NULL);
  call->task_count = call->unfinished = (r->prompt_count ? r->prompt_count : 1) * r->n;
  call->tasks = calloc(call->task_count, sizeof *call->tasks);
  call_make_id(prefix(r->api), call->id);
  if (!call->tasks) {
    call->task_count = 0;
    prepare_no_memory(p);
  } else if (r->model && strcmp(r->model, s->name) != 0) {
    problem_set(p, 404, "model", "model_not_found", "there is no model \"%.100s\" here; there is \"%.100s\"", r->model,
                s->name);
  } else if (r->previous) {
    const enum store_found found = base_find(s, r->previous, &base);
    if (found == STORE_DOWN) problem_set(p, 503, "previous_response_id", "", "%s", store_down);
    if (found == STORE_ABSENT)
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
