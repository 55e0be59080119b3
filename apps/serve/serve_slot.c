// serve_slot: one slot: states into it and out of it, its end, its failure.
#include "common.h"
#include "serve_slots.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SPARE_TOKENS = 1000 };

// ---------------------------------------------------------------- failures

// After a failed call the sequences of these texts are undefined, until slot_begin() resets them.
void fail_texts(struct batch *b, struct task *const *tasks, size_t n, deltaic_status status) {
  char text[256];
  const char *sentence = status == DELTAIC_OUT_OF_MEMORY ? "" : deltaic_last_error();
  snprintf(text, sizeof text, "%s", *sentence ? sentence : deltaic_status_text(status));
  if (status == DELTAIC_DEVICE_LOST && !b->code) {
    const int code = complain_status(status);
    pthread_mutex_lock(&b->lock);
    b->code = code;
    pthread_mutex_unlock(&b->lock);
  }
  for (size_t i = 0; i < n; ++i)
    if (tasks[i]->slot >= 0) queue_fail(b, tasks[i]->call, 500, text); // one of the same call may have ended it
}

// ---------------------------------------------------------------- states

// Keeps a state of the text that was saved from the slot, for later texts. asked: it is the state behind the question.
// stays: it also stays in the slot, until another text takes the slot. Returns false if there is no state.
static bool keep(struct batch *b, struct task *t, uint32_t slot, bool asked, bool stays, struct blob *state) {
  struct resident resident = {0};
  if (state) {
    t->state_bytes = state->size;
    keep_state(t, asked, state);
    if (stays) keep_state_key(t, asked, resident.key);
  }
  resident_set(b, slot, resident);
  return state;
}

static void empty_slot(struct batch *b, uint32_t slot);
static void finish_own(struct batch *b, struct task *t);

// Called when the state that waited in the slot for its text to end is saved. If the text has ended meanwhile, its end
// is completed here, before another text begins in the slot: if beginning fails, it ends all texts of its call.
static void settled(struct batch *b, uint32_t slot, struct blob *state) {
  struct task *t = b->residents[slot].holder;
  if (t) {
    t->aside = -1;
    t->marked = keep(b, t, slot, true, true, state);
  }
  if (t && t->finishing) finish_own(b, t);
  if (b->tasks[slot] || (b->check && b->check_slot == slot)) empty_slot(b, slot);
}

// ---------------------------------------------------------------- the beginning

static void read_on(struct batch *b, struct task *t);

// Lets the text continue the state in the slot. state: it was loaded into the slot. Returns the number of tokens that
// the state has read; 0: no state.
static size_t take_state(struct batch *b, uint32_t slot, struct task *t, const struct blob *state) {
  struct metrics *m = &b->server->metrics;
  const size_t tokens = t->there ? t->base_count : t->cached;
  const bool good = (t->there || state) && deltaic_sequence_position(b->session, slot) == tokens &&
                    !deltaic_sequence_logits(b->session, slot, b->logits); // else nothing could be drawn from it
  if (!good) {
    if (t->state || t->in_slot) metrics_add(m, METRIC_STATES_COMPUTED, 1);
    return 0;
  }
  metrics_add(m, t->there ? METRIC_STATES_RESIDENT : METRIC_STATES_LOADED, 1);
  metrics_add(m, METRIC_CACHED_TOKENS, (int64_t)tokens);
  deltaic_sequence_state_size(b->session, slot, &t->state_bytes);
  if (!t->state) task_count_cached(t); // only the slot had it
  return tokens;
}

static void begun(struct batch *b, uint32_t slot, struct blob *state) {
  struct task *t = b->tasks[slot];
  deltaic_status status = DELTAIC_OK;
  t->at = t->cached = take_state(b, slot, t, state);
  if (!t->cached) status = deltaic_sequence_reset(b->session, slot);
  blob_drop(t->state);
  t->state = NULL;
  if (status)
    fail_texts(b, &t, 1, status);
  else if (t->at >= t->prompt_count) // the state has the whole prompt, so no slice is read
    slot_has_read(b, t, 0);
}

void check_end(struct batch *b, struct check *check) {
  b->check = NULL;
  check->done(check);
  pthread_mutex_lock(&b->lock);
  b->checking = false;
  pthread_mutex_unlock(&b->lock);
}

static void checked(struct batch *b, uint32_t slot, struct blob *state) {
  struct check *check = b->check;
  check->good = state;
  if (check->good) check->tokens = deltaic_sequence_position(b->session, slot);
  if (!check->good) {
    snprintf(check->text, sizeof check->text, "%s", deltaic_last_error());
  } else if (deltaic_sequence_logits(b->session, slot, b->logits)) {
    check->good = false;
    snprintf(check->text, sizeof check->text, "the state has no logits, from which its next token is drawn");
  }
  check_end(b, check);
}

// Called when the queued texts that continue the slot's state have their copy of it, or when there are none.
static void emptied(struct batch *b, uint32_t slot, struct blob *copy) {
  struct task *t = b->tasks[slot];
  resident_leave(b, slot, copy);
  if (!t)
    move_in(b, slot, b->check->state, checked);
  else if (t->state && !t->there)
    move_in(b, slot, t->state, begun);
  else
    begun(b, slot, NULL);
}

static void empty_slot(struct batch *b, uint32_t slot) {
  struct task *t = b->tasks[slot];
  if (t) t->there = resident_continues(&b->residents[slot], t);
  if (resident_wanted(b, slot))
    move_out(b, slot, NULL, 0, emptied);
  else
    emptied(b, slot, NULL);
}

static void take_slot(struct batch *b, uint32_t slot) {
  const struct task *holder = b->residents[slot].holder;
  if (holder)
    move_out(b, slot, keep_before(holder), holder->base_count, settled);
  else
    empty_slot(b, slot);
}

void slot_begin(struct batch *b, uint32_t slot, struct task *t) {
  struct metrics *m = &b->server->metrics;
  b->tasks[slot] = t;
  t->slot = (int)slot;
  t->begun = t->last_read = time_now();
  metrics_add(m, METRIC_RUNNING, 1);
  metrics_time(m, TIME_QUEUED, t->begun - t->queued);
  take_slot(b, slot);
}

void slot_check(struct batch *b, struct check *check) {
  b->check = check;
  b->check_slot = slot_free(b, NULL);
  take_slot(b, b->check_slot);
}

// ---------------------------------------------------------------- the prompt

static void marked(struct batch *b, uint32_t slot, struct blob *state) {
  struct task *t = b->tasks[slot];
  t->marked = keep(b, t, slot, true, false, state);
  read_on(b, t);
}

// Keeps the state behind the question, before the text changes it. Saving takes long, so a copy waits in a free slot
// until the text ends. If no slot is free, or another text needs the state in the free slot, a save begins now and
// mark() returns true.
static bool mark(struct batch *b, struct task *t) {
  const uint32_t slot = (uint32_t)t->slot, aside = slot_free(b, NULL);
  if (aside < b->slots && !b->residents[aside].holder && !resident_wanted(b, aside)) {
    resident_set(b, aside, (struct resident){0});
    if (!deltaic_sequence_copy(b->session, aside, slot)) {
      resident_set(b, aside, (struct resident){.holder = t});
      t->aside = (int)aside;
      return false;
    }
  }
  move_out(b, slot, keep_before(t), t->base_count, marked);
  return true;
}

static void prompt_read(struct task *t) {
  if (!t->most) t->due = END_LENGTH;
}

// Texts that wait for this one's prompt continue behind its state.
static void released(struct batch *b, uint32_t slot, struct blob *state) {
  struct task *leader = b->tasks[slot];
  struct call *call = leader->call;
  for (size_t i = 0; i < call->task_count; ++i) {
    struct task *t = &call->tasks[i];
    if (t->leader != leader) continue;
    if (state) {
      leader->state_bytes = state->size;
      task_set_state(t, state, leader->prompt_count);
    }
    pthread_mutex_lock(&b->lock);
    t->leader = NULL;
    pthread_mutex_unlock(&b->lock);
  }
  prompt_read(leader);
}

static bool leads(const struct task *t) {
  for (size_t i = 0; i < t->call->task_count; ++i)
    if (t->call->tasks[i].leader == t) return true;
  return false;
}

static void read_on(struct batch *b, struct task *t) {
  if (t->at < t->prompt_count) return;
  if (leads(t))
    move_out(b, (uint32_t)t->slot, keep_before(t), t->base_count, released);
  else
    prompt_read(t);
}

void slot_has_read(struct batch *b, struct task *t, size_t count) {
  t->at += count;
  if ((t->at == t->mark || t->at == t->prompt_count) && !task_add_span(t, t->at, false)) {
    fail_texts(b, &t, 1, DELTAIC_OUT_OF_MEMORY);
    return;
  }
  const bool marks = t->mark && t->at == t->mark && !t->marked && t->aside < 0;
  if (!marks || !mark(b, t)) read_on(b, t);
}

// ---------------------------------------------------------------- the end

// Whether numbers overflowed: then the text means nothing, and its state is not kept.
static bool has_numbers(struct batch *b, const struct task *t) {
  const int32_t n = b->server->engine.model_info.vocabulary;
  if (deltaic_sequence_logits(b->session, (uint32_t)t->slot, b->logits)) return false;
  for (int32_t i = 0; i < n; ++i)
    if (isfinite(b->logits[i])) return true;
  return false;
}

static void finished(struct batch *b, uint32_t slot, struct blob *state) {
  struct task *t = b->tasks[slot];
  keep(b, t, slot, false, true, state);
  keep_turn(t, t->due);
  batch_end(b, t, t->due);
}

static void finish_own(struct batch *b, struct task *t) {
  if (keep_needs_state(t, t->due))
    move_out(b, (uint32_t)t->slot, keep_before(t), t->base_count, finished);
  else
    finished(b, (uint32_t)t->slot, NULL);
}

void slot_finish(struct batch *b, struct task *t) {
  struct call *call = t->call;
  t->finishing = true;
  if (!has_numbers(b, t)) {
    queue_fail(b, t->call, 500, "the model's logits are not finite: numbers overflow");
    return;
  }
  pthread_mutex_lock(&call->lock);
  deltaic_status status = voice_finish(t);
  if (t->due == END_LENGTH && voice_stopped(t)) t->due = END_STOP;
  pthread_mutex_unlock(&call->lock);
  if (status)
    fail_texts(b, &t, 1, status);
  else if (!call->request.store)
    batch_end(b, t, t->due);
  else if (t->aside < 0)
    finish_own(b, t);
  else if (!move_active(b, (uint32_t)t->aside)) // else it is on its way already
    move_out(b, (uint32_t)t->aside, keep_before(t), t->base_count, settled);
}

// ---------------------------------------------------------------- numbers

deltaic_status fill_spares(struct batch *b) {
  static const int32_t token = 0;
  deltaic_status status = DELTAIC_OK;
  for (uint32_t i = 1; i < b->group && !status; ++i) {
    const uint32_t sequence = b->slots + i - 1;
    const deltaic_piece piece = {.sequence = sequence, .tokens = &token, .count = 1};
    if (deltaic_sequence_position(b->session, sequence) % SPARE_TOKENS) continue;
    status = deltaic_sequence_reset(b->session, sequence);
    if (!status) status = deltaic_session_eval_batch(b->session, &piece, 1);
  }
  return status;
}

void fill_note(struct note *note, const float *logits, int32_t n, int wanted) {
  double most = -INFINITY, sum = 0;
  note->count = 0;
  for (int32_t i = 0; i < n; ++i)
    if (logits[i] > most) most = logits[i];
  for (int32_t i = 0; i < n; ++i) sum += exp(logits[i] - most);
  const double whole = most + log(sum);
  note->log_probability = (float)(logits[note->token] - whole);
  for (int32_t i = 0; i < n && wanted; ++i) {
    const float value = (float)(logits[i] - whole);
    int at = note->count;
    if (at == wanted && value <= note->likely[at - 1].log_probability) continue;
    if (at == wanted) --at;
    for (; at && value > note->likely[at - 1].log_probability; --at) note->likely[at] = note->likely[at - 1];
    note->likely[at] = (struct likely){i, value};
    if (note->count < wanted) ++note->count;
  }
}
