// serve_step: one token of every text whose prompt is read.
#include "common.h"
#include "serve_slots.h"

#include <stdlib.h>

static bool ends(const struct batch *b, const struct task *t, int32_t token) {
  if (t->call->request.ignore_eos) return false;
  return deltaic_model_is_end(b->server->engine.model, token) || (t->chat && token == b->server->chat_end);
}

static bool add_note(struct task *t, const struct note *note) {
  if (t->note_count == t->note_room) {
    const size_t room = 2 * t->note_room + 16;
    struct note *grown = realloc(t->notes, room * sizeof *grown);
    if (!grown) return false;
    t->notes = grown;
    t->note_room = room;
  }
  t->notes[t->note_count] = *note;
  t->notes[t->note_count++].text_at = task_characters(t);
  return true;
}

static void take_time(struct batch *b, struct task *t, double now) {
  struct metrics *m = &b->server->metrics;
  if (t->last > 0)
    metrics_time(m, TIME_BETWEEN_TOKENS, now - t->last);
  else
    metrics_time(m, TIME_FIRST_TOKEN, now - t->queued);
  if (!t->made) t->first = now;
  t->last = now;
}

// END_NONE: the text goes on, or has failed.
static enum ending take_token(struct batch *b, struct task *t, int32_t token, const struct note *note) {
  struct call *call = t->call;
  // Evaluation tools expect an entry for the end token too.
  const bool end = ends(b, t, token), noted_end = call->request.api == API_COMPLETIONS;
  deltaic_status status = DELTAIC_OK;
  pthread_mutex_lock(&call->lock);
  if (!task_add_token(t, token) || !task_add_span(t, t->count, true)) status = DELTAIC_OUT_OF_MEMORY;
  t->at = t->count;
  ++t->made;
  if ((!end || noted_end) && !status && note && !add_note(t, note)) status = DELTAIC_OUT_OF_MEMORY;
  if (!end && !status) status = voice_token(t, token);
  const bool stop = voice_stopped(t);
  pthread_mutex_unlock(&call->lock);
  if (status) queue_fail(b, t->call, 500, deltaic_status_text(status));
  if (!status && (end || stop || t->made >= t->most || t->at >= b->context))
    return end ? END_EOS : stop ? END_STOP : END_LENGTH;
  return END_NONE;
}

// The connections that take these texts as they grow.
static void wake(struct batch *b, struct task *const *tasks, size_t n) {
  struct call *calls[MOST_SLOTS];
  size_t count = 0;
  for (size_t i = 0; i < n; ++i)
    if (tasks[i]->call->request.stream) calls[count++] = call_hold(tasks[i]->call);
  waker_add(b->waker, calls, count);
}

static deltaic_status draw(struct batch *b, struct task *const *tasks, size_t n, int32_t *tokens) {
  uint32_t sequences[MOST_SLOTS];
  deltaic_sampling sampling[MOST_SLOTS];
  const size_t all = b->group ? b->group : n;
  for (size_t i = 0; i < all; ++i) {
    sequences[i] = i < n ? (uint32_t)tasks[i]->slot : b->slots + (uint32_t)(i - n);
    sampling[i] = i < n ? tasks[i]->sampling : DELTAIC_INIT(deltaic_sampling);
  }
  return deltaic_session_next_batch(b->session, sequences, all, sampling, tokens, NULL);
}

static bool noted(const struct task *t) { return t->call->request.likely >= 0; }

// The logits that tokens are drawn from, of the texts whose probabilities are wanted.
static deltaic_status read_logits(struct batch *b, struct task *const *tasks, size_t n) {
  const size_t vocabulary = (size_t)b->server->engine.model_info.vocabulary;
  size_t rows = 0;
  for (size_t i = 0; i < n; ++i) rows += noted(tasks[i]);
  if (rows > b->drawn_rows) {
    float *grown = realloc(b->drawn, rows * vocabulary * sizeof *grown);
    if (!grown) return DELTAIC_OUT_OF_MEMORY;
    b->drawn = grown;
    b->drawn_rows = rows;
  }
  deltaic_status status = DELTAIC_OK;
  float *to = b->drawn;
  for (size_t i = 0; i < n && !status; ++i) {
    if (!noted(tasks[i])) continue;
    status = deltaic_sequence_logits(b->session, (uint32_t)tasks[i]->slot, to);
    to += vocabulary;
  }
  return status;
}

// After such a failure the sequences are as they were.
static bool unchanged(deltaic_status status) {
  return status == DELTAIC_CONTEXT_FULL || status == DELTAIC_BAD_STATE || status == DELTAIC_INVALID_ARGUMENT;
}

// The calls of these texts are held. A text that fails ends the others of its call. Texts that cannot make a step
// together make it one by one, so that only those fail that are the cause.
static void step(struct batch *b, struct task **tasks, size_t n) {
  const int32_t vocabulary = b->server->engine.model_info.vocabulary;
  int32_t tokens[MOST_SLOTS];
  size_t left = 0;
  for (size_t i = 0; i < n; ++i)
    if (tasks[i]->slot >= 0) tasks[left++] = tasks[i];
  n = left;
  if (!n) return;
  const struct moment start = engine_now(&b->server->engine);
  deltaic_status status = b->group ? fill_spares(b) : DELTAIC_OK;
  if (!status) status = read_logits(b, tasks, n);
  if (!status) status = draw(b, tasks, n, tokens);
  if (n > 1 && unchanged(status)) {
    for (size_t i = 0; i < n; ++i) step(b, tasks + i, 1);
    return;
  }
  if (status) {
    fail_texts(b, tasks, n, status);
    return;
  }
  metrics_add(&b->server->metrics, METRIC_STEP_TIME, (int64_t)(1e6 * engine_seconds(&b->server->engine, start)));
  metrics_add(&b->server->metrics, METRIC_STEPS, 1);
  metrics_add(&b->server->metrics, METRIC_TOKENS, (int64_t)n);
  const float *logits = b->drawn;
  const double now = time_now();
  for (size_t i = 0; i < n; ++i) {
    struct note note = {.token = tokens[i]};
    const bool wanted = noted(tasks[i]);
    if (wanted) {
      fill_note(&note, logits, vocabulary, tasks[i]->call->request.likely);
      logits += vocabulary;
    }
    if (tasks[i]->slot < 0) continue;
    take_time(b, tasks[i], now);
    tasks[i]->due = take_token(b, tasks[i], tokens[i], wanted ? &note : NULL);
  }
  wake(b, tasks, n);
}

static bool draws(const struct batch *b, uint32_t slot) {
  const struct task *t = b->tasks[slot];
  return t && t->at >= t->prompt_count && !t->due && !move_active(b, slot);
}

// Of the texts that are to end, the one that has waited longest. When the time for moves is over, only texts that save
// nothing count.
static struct task *next_due(const struct batch *b) {
  const bool all = moves_may_run(b);
  struct task *first = NULL;
  for (uint32_t i = 0; i < b->slots; ++i) {
    struct task *t = b->tasks[i];
    if (!t || !t->due || t->finishing || (!all && t->call->request.store)) continue;
    if (!first || t->last < first->last) first = t;
  }
  return first;
}

void slots_step(struct batch *b) {
  struct task *tasks[MOST_SLOTS];
  struct call *calls[MOST_SLOTS];
  size_t n = 0;
  for (uint32_t i = 0; i < b->slots; ++i)
    if (draws(b, i)) tasks[n++] = b->tasks[i];
  for (size_t i = 0; i < n; ++i) calls[i] = call_hold(tasks[i]->call);
  const size_t most = b->group ? b->group : n;
  for (size_t i = 0; i < n; i += most) step(b, tasks + i, n - i < most ? n - i : most);
  for (size_t i = 0; i < n; ++i) call_drop(calls[i]);
  b->stepped = time_now();
  for (struct task *t; (t = next_due(b));) slot_finish(b, t);
}
