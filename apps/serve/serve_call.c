// serve_call: memory of calls and tasks.
#include "serve_call.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

size_t working_most(const struct server *s) { return (size_t)s->options.working_mib << 20; }

const char working_full[] = "the memory for requests is full; try again";

bool working_take(struct server *s, size_t *taken, size_t bytes) {
  const size_t most = working_most(s), before = atomic_fetch_add(&s->working, bytes);
  const bool good = before <= most && bytes <= most - before;
  if (good)
    *taken += bytes;
  else
    atomic_fetch_sub(&s->working, bytes);
  metrics_set(&s->metrics, METRIC_WORKING, (int64_t)atomic_load(&s->working));
  return good;
}

void working_give(struct server *s, size_t *taken) {
  atomic_fetch_sub(&s->working, *taken);
  *taken = 0;
  metrics_set(&s->metrics, METRIC_WORKING, (int64_t)atomic_load(&s->working));
}

bool call_take(struct call *call, size_t bytes, struct problem *p) {
  const size_t share = working_most(call->server) / 4;
  if (call->taken > share || bytes > share - call->taken)
    problem_set(p, 400, "", "request_too_large",
                "the request needs more than %zu MiB of memory: fewer tokens, choices or probabilities", share >> 20);
  else if (!working_take(call->server, &call->taken, bytes))
    problem_set(p, 429, "", "memory_full", "%s", working_full);
  return !p->status;
}

void task_set_state(struct task *t, struct blob *state, size_t tokens) {
  blob_drop(t->state);
  t->state = blob_hold(state);
  t->cached = tokens;
}

// The usage figures count a prompt once, whatever its choices.
void task_count_cached(const struct task *t) {
  if (t->index % t->call->request.n) return;
  pthread_mutex_lock(&t->call->lock);
  t->call->cached_tokens += t->base_count;
  pthread_mutex_unlock(&t->call->lock);
}

void task_set_base_state(struct task *t, struct blob *state) {
  task_set_state(t, state, t->base_count);
  task_count_cached(t);
}

// All texts of a call continue the same state, so it is fetched once.
void call_fetch_states(struct call *call) {
  struct blob *state = NULL;
  bool asked = false;
  for (size_t i = 0; i < call->task_count; ++i) {
    struct task *t = &call->tasks[i];
    if (!t->in_slot || t->state) continue;
    if (!asked) state = store_get_state(call->server->store, t->base_key, t->base_count);
    asked = true;
    t->in_slot = false;
    if (state) task_set_base_state(t, state);
  }
  blob_drop(state);
}

bool bytes_add(struct bytes *to, const char *data, size_t size) {
  const size_t want = to->size + size + 1;
  if (want <= size) return false;
  if (want > to->room) {
    const size_t room = want < SIZE_MAX / 2 ? 2 * want : want;
    char *grown = realloc(to->data, room);
    if (!grown) return false;
    to->data = grown;
    to->room = room;
  }
  if (size) memcpy(to->data + to->size, data, size);
  to->size += size;
  to->data[to->size] = 0;
  return true;
}

static void task_clear(struct task *t) {
  free(t->tokens);
  free(t->spans);
  blob_drop(t->state);
  deltaic_decoder_free(t->decoder);
  deltaic_stops_free(t->stops);
  deltaic_stops_free(t->thought);
  free(t->begin.data);
  free(t->all.data);
  free(t->text.data);
  free(t->thinking.data);
  free(t->notes);
}

bool task_add_token(struct task *t, int32_t token) {
  if (t->count == t->room) {
    const size_t room = 2 * t->room + 64;
    int32_t *grown = realloc(t->tokens, room * sizeof *grown);
    if (!grown) return false;
    t->tokens = grown;
    t->room = room;
  }
  t->tokens[t->count++] = token;
  return true;
}

size_t task_characters(struct task *t) {
  for (; t->counted < t->text.size; ++t->counted) t->characters += ((uint8_t)t->text.data[t->counted] & 0xc0) != 0x80;
  return t->characters;
}

bool task_add_span(struct task *t, size_t end, bool drawn) {
  uint32_t *last = t->span_count ? &t->spans[t->span_count - 1] : NULL;
  if (last && TURN_SPAN_END(*last) >= end) return true;
  if (last && drawn && TURN_SPAN_DRAWN(*last)) {
    *last = TURN_SPAN(end, drawn);
    return true;
  }
  if (t->span_count == t->span_room) {
    const size_t room = 2 * t->span_room + 4;
    uint32_t *grown = realloc(t->spans, room * sizeof *grown);
    if (!grown) return false;
    t->spans = grown;
    t->span_room = room;
  }
  t->spans[t->span_count++] = TURN_SPAN(end, drawn);
  return true;
}

struct call *call_hold(struct call *call) {
  pthread_mutex_lock(&call->lock);
  ++call->holders;
  pthread_mutex_unlock(&call->lock);
  return call;
}

void call_drop(struct call *call) {
  if (!call) return;
  pthread_mutex_lock(&call->lock);
  const unsigned left = --call->holders;
  pthread_mutex_unlock(&call->lock);
  if (left) return;
  for (size_t i = 0; i < call->task_count; ++i) task_clear(&call->tasks[i]);
  free(call->tasks);
  free(call->out.data);
  working_give(call->server, &call->taken);
  request_free(&call->request);
  pthread_mutex_destroy(&call->lock);
  free(call);
}

void call_wake(struct call *call) {
  if (!call->connection) return;
  MHD_resume_connection(call->connection);
  call->connection = NULL;
}
