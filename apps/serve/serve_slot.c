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

// The slot's state as it is; NULL: no memory.
static struct blob *save(struct batch *b, uint32_t slot) {
  struct metrics *m = &b->server->metrics;
  size_t bytes = 0;
  if (deltaic_sequence_state_size(b->session, slot, &bytes)) return NULL;
  struct blob *blob = blob_create(bytes);
  if (blob && deltaic_sequence_save(b->session, slot, blob->bytes, bytes, NULL)) {
    blob_drop(blob);
    return NULL;
  }
  if (!blob) return NULL;
  metrics_add(m, METRIC_STATES_SAVED, 1);
  metrics_add(m, METRIC_STATE_BYTES_SAVED, (int64_t)bytes);
  return blob;
}

// Saves the slot's state for later texts. asked: it is the state behind the question. stays: it stays in the slot as
// well, until another text takes the slot.
static bool keep(struct batch *b, struct task *t, uint32_t slot, bool asked, bool stays) {
  struct blob *state = save(b, slot);
  struct resident resident = {0};
  if (state) {
    t->state_bytes = state->size;
    keep_state(t, asked, state);
    if (stays) keep_state_key(t, asked, resident.key);
  }
  resident_set(b, slot, resident);
  blob_drop(state);
  return state;
}

// Saves the state that waits in the slot for its text to end, if there is one.
static void settle(struct batch *b, uint32_t slot) {
  struct task *t = b->residents[slot].holder;
  if (!t) return;
  t->aside = -1;
  t->marked = keep(b, t, slot, true, true);
}

// Before another text or state takes the slot: texts of the queue that continue its state get a copy.
static void vacate(struct batch *b, uint32_t slot) {
  struct blob *copy = resident_wanted(b, slot) ? save(b, slot) : NULL;
  resident_leave(b, slot, copy);
  blob_drop(copy);
}

// Keeps the state behind the question, which the text changes from now on. Saving takes long, so a copy waits in a free
// slot until the text ends. If no slot is free, or another text needs the state in the free slot, the state is saved
// now.
static void mark(struct batch *b, struct task *t) {
  const uint32_t slot = (uint32_t)t->slot, aside = slot_free(b, NULL);
  if (aside < b->slots && !b->residents[aside].holder && !resident_wanted(b, aside)) {
    resident_set(b, aside, (struct resident){0});
    if (!deltaic_sequence_copy(b->session, aside, slot)) {
      resident_set(b, aside, (struct resident){.holder = t});
      t->aside = (int)aside;
      return;
    }
  }
  t->marked = keep(b, t, slot, true, false);
}

// Gives the slot the state that the text continues. there: the slot already has it. Returns the number of tokens that
// the state has read; 0: no state.
static size_t load(struct batch *b, uint32_t slot, struct task *t, bool there) {
  struct metrics *m = &b->server->metrics;
  const size_t tokens = there ? t->base_count : t->cached;
  const bool good =
      (there || (t->state && !deltaic_sequence_load(b->session, slot, t->state->bytes, t->state->size))) &&
      deltaic_sequence_position(b->session, slot) == tokens &&
      !deltaic_sequence_logits(b->session, slot, b->logits); // else nothing could be drawn from it
  if (!good) {
    if (t->state || t->in_slot) metrics_add(m, METRIC_STATES_COMPUTED, 1);
    return 0;
  }
  metrics_add(m, there ? METRIC_STATES_RESIDENT : METRIC_STATES_LOADED, 1);
  if (!there) metrics_add(m, METRIC_STATE_BYTES_LOADED, (int64_t)t->state->size);
  metrics_add(m, METRIC_CACHED_TOKENS, (int64_t)tokens);
  deltaic_sequence_state_size(b->session, slot, &t->state_bytes);
  if (!t->state) task_count_cached(t); // only the slot had it
  return tokens;
}

void slot_check(struct batch *b, struct check *check) {
  const uint32_t slot = slot_free(b, NULL);
  settle(b, slot);
  vacate(b, slot);
  check->good = !deltaic_sequence_load(b->session, slot, check->state->bytes, check->state->size);
  if (check->good) check->tokens = deltaic_sequence_position(b->session, slot);
  if (check->good && deltaic_sequence_logits(b->session, slot, b->logits)) {
    check->good = false;
    snprintf(check->text, sizeof check->text, "the state has no logits, from which its next token is drawn");
    return;
  }
  if (!check->good) snprintf(check->text, sizeof check->text, "%s", deltaic_last_error());
}

// Texts that wait for this one's prompt continue behind its state.
static void release(struct batch *b, struct task *leader) {
  struct call *call = leader->call;
  struct blob *state = NULL;
  for (size_t i = 0; i < call->task_count; ++i) {
    struct task *t = &call->tasks[i];
    if (t->leader != leader) continue;
    if (!state) state = save(b, (uint32_t)leader->slot);
    if (state) {
      leader->state_bytes = state->size;
      task_set_state(t, state, leader->prompt_count);
    }
    pthread_mutex_lock(&b->lock);
    t->leader = NULL;
    pthread_mutex_unlock(&b->lock);
  }
  blob_drop(state);
}

void slot_has_read(struct batch *b, struct task *t, size_t count) {
  t->at += count;
  if (t->mark && t->at == t->mark && !t->marked && t->aside < 0) mark(b, t);
  if ((t->at == t->mark || t->at == t->prompt_count) && !task_add_span(t, t->at, false)) {
    fail_texts(b, &t, 1, DELTAIC_OUT_OF_MEMORY);
    return;
  }
  if (t->at < t->prompt_count) return;
  release(b, t);
  if (!t->most) slot_finish(b, t, END_LENGTH);
}

void slot_begin(struct batch *b, uint32_t slot, struct task *t) {
  struct metrics *m = &b->server->metrics;
  deltaic_status status = DELTAIC_OK;
  settle(b, slot);
  const bool there = resident_continues(&b->residents[slot], t);
  vacate(b, slot);
  b->tasks[slot] = t;
  t->slot = (int)slot;
  t->begun = t->last_read = time_now();
  metrics_add(m, METRIC_RUNNING, 1);
  metrics_time(m, TIME_QUEUED, t->begun - t->queued);
  t->at = t->cached = load(b, slot, t, there);
  if (!t->cached) status = deltaic_sequence_reset(b->session, slot);
  blob_drop(t->state);
  t->state = NULL;
  if (status)
    fail_texts(b, &t, 1, status);
  else if (t->at >= t->prompt_count) // the state has the whole prompt, so no slice is read
    slot_has_read(b, t, 0);
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

void slot_finish(struct batch *b, struct task *t, enum ending ending) {
  struct call *call = t->call;
  if (!has_numbers(b, t)) {
    queue_fail(b, t->call, 500, "the model's logits are not finite: numbers overflow");
    return;
  }
  pthread_mutex_lock(&call->lock);
  deltaic_status status = voice_finish(t);
  if (ending == END_LENGTH && voice_stopped(t)) ending = END_STOP;
  pthread_mutex_unlock(&call->lock);
  if (status) {
    fail_texts(b, &t, 1, status);
    return;
  }
  if (call->request.store) {
    if (t->aside >= 0) settle(b, (uint32_t)t->aside);
    if (keep_needs_state(t, ending)) keep(b, t, (uint32_t)t->slot, false, true);
    keep_turn(t, ending);
  }
  batch_end(b, t, ending);
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
