// serve_batch: continuous batching. Each round admits texts to free slots, moves pieces of states, reads a slice of the
// prompts, makes one token of every text whose prompt is read, and begins to end the texts that are complete. Between
// any two of these it looks for clients that have gone. Everything between two steps together takes about --stall ms.
#include "serve_batch.h"
#include "common.h"
#include "lanes.h"
#include "platform.h"
#include "serve_slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- draining

// Cuts and keeps running texts. A call fails if it also has texts whose prompts are not read yet. A state that takes
// too long to save is not kept.
static void end_all(struct batch *b) {
  enum { MOVE_SECONDS = 5 };
  const double until = time_now() + MOVE_SECONDS;
  moves_finish(b, until);
  for (uint32_t i = 0; i < b->slots; ++i) {
    struct task *t = b->tasks[i];
    if (!t || t->at < t->prompt_count || t->finishing) continue;
    if (!t->due) t->due = END_SHUTDOWN;
    slot_finish(b, t);
  }
  moves_finish(b, until);
  for (;;) {
    pthread_mutex_lock(&b->lock);
    struct call *call = b->calls;
    pthread_mutex_unlock(&b->lock);
    if (!call) return;
    queue_fail(b, call, 503, "the server is ending");
  }
}

void batch_drain(struct batch *b, double seconds) {
  pthread_mutex_lock(&b->lock);
  b->draining = true;
  b->deadline = time_now() + seconds;
  pthread_cond_signal(&b->work);
  pthread_mutex_unlock(&b->lock);
}

bool batch_idle(struct batch *b) {
  pthread_mutex_lock(&b->lock);
  const bool idle = !b->calls && !b->checks && !b->checking;
  pthread_mutex_unlock(&b->lock);
  return idle;
}

bool batch_failed(struct batch *b, int *code) {
  pthread_mutex_lock(&b->lock);
  *code = b->code;
  pthread_mutex_unlock(&b->lock);
  return *code != EXIT_OK;
}

// ---------------------------------------------------------------- the thread

// The next state to check; where no slot is free, one whose client has left. NULL: there is none.
static struct check *take_check(struct batch *b) {
  const bool room = slot_free(b, NULL) < b->slots;
  pthread_mutex_lock(&b->lock);
  struct check **at = &b->checks;
  while (*at && !room && !client_left((*at)->socket)) at = &(*at)->next;
  struct check *check = *at;
  if (check) {
    *at = check->next;
    check->left = !room;
    b->checking = true;
  }
  pthread_mutex_unlock(&b->lock);
  return check;
}

static void run_checks(struct batch *b) {
  struct check *check;
  while (!b->check && (check = take_check(b)))
    if (check->left)
      check_end(b, check);
    else
      slot_check(b, check);
}

// The first text of a round begins whatever the time, or none would where the rest of a round takes long.
static void admit(struct batch *b) {
  for (bool first = true; slot_free(b, NULL) < b->slots && (first || moves_may_run(b)); first = false) {
    pthread_mutex_lock(&b->lock);
    struct task *t = queue_take(b);
    pthread_mutex_unlock(&b->lock);
    if (!t) return;
    slot_begin(b, slot_free(b, t), t);
  }
}

static bool busy(const struct batch *b) { return b->calls || b->checks || b->moving; }

static void *work(void *user) {
  struct batch *b = user;
  for (;;) {
    pthread_mutex_lock(&b->lock);
    while (!b->stop && !busy(b)) {
      pthread_cond_wait(&b->work, &b->lock);
      b->stepped = time_now(); // no text has waited
    }
    const bool end = b->stop && !busy(b), late = (b->draining && time_now() > b->deadline) || b->stop || b->code;
    pthread_mutex_unlock(&b->lock);
    if (end) return NULL;
    run_checks(b);
    queue_end_lost(b);
    if (late) {
      end_all(b);
      continue;
    }
    admit(b);
    moves_run(b);
    slots_read(b);
    queue_end_lost(b);
    slots_step(b);
  }
}

// ---------------------------------------------------------------- begin and end

static void free_batch(struct batch *b) {
  waker_stop(b->waker);
  deltaic_session_free(b->session);
  pthread_mutex_destroy(&b->lock);
  pthread_cond_destroy(&b->work);
  free(b->watch.calls);
  free(b->watch.polls);
  free(b->logits);
  free(b->drawn);
  free(b);
}

int batch_start(struct server *server, struct batch **out) {
  struct batch *b = must_resize(NULL, sizeof *b);
  *b = (struct batch){.server = server, .most_queued = server->options.queue};
  pthread_mutex_init(&b->lock, NULL);
  pthread_cond_init(&b->work, NULL);
  int code = slots_open(b);
  if (!code) code = speed_measure(b);
  b->waker = code ? NULL : waker_start();
  if (!code && !b->waker) code = complain(EXIT_FAILED, "no thread can be started");
  if (!code && platform_thread(&b->thread, 4 << 20, work, b)) code = complain(EXIT_FAILED, "no thread can be started");
  if (code)
    free_batch(b);
  else
    *out = b;
  return code;
}

int batch_stop(struct batch *b) {
  if (!b) return EXIT_OK;
  pthread_mutex_lock(&b->lock);
  b->draining = b->stop = true;
  pthread_cond_signal(&b->work);
  pthread_mutex_unlock(&b->lock);
  pthread_join(b->thread, NULL);
  const int code = b->code;
  free_batch(b);
  return code;
}

uint64_t batch_context(const struct batch *batch) { return batch->context; }

enum admission batch_check_state(struct batch *b, struct check *check) {
  pthread_mutex_lock(&b->lock);
  uint32_t waiting = 0;
  struct check **last = &b->checks;
  for (; *last; last = &(*last)->next) ++waiting;
  const enum admission admission = b->draining ? ADMIT_ENDING : waiting < b->slots ? ADMIT_QUEUED : ADMIT_FULL;
  if (admission == ADMIT_QUEUED) {
    check->next = NULL;
    *last = check;
    pthread_cond_signal(&b->work);
  }
  pthread_mutex_unlock(&b->lock);
  return admission;
}
