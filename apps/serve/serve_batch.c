// serve_batch: continuous batching. Each round admits texts to free slots, reads a slice of the prompts, and makes one
// token of every text whose prompt is read. Lost clients are looked for between any two of these.
#define _GNU_SOURCE // POLLRDHUP
#include "serve_batch.h"
#include "common.h"
#include "lanes.h"
#include "platform.h"
#include "serve_slots.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- the queue

enum admission batch_submit(struct batch *b, struct call *call, uint32_t *retry) {
  const size_t count = call->task_count;
  pthread_mutex_lock(&b->lock);
  enum admission admission = b->draining || b->stop ? ADMIT_ENDING : ADMIT_QUEUED;
  if (!admission && (count > b->most_queued || b->queued > b->most_queued - count)) admission = ADMIT_FULL;
  double wait = b->task_seconds * (double)(b->queued + 1) / b->slots;
  *retry = wait < 1 ? 1 : wait > 120 ? 120 : (uint32_t)wait + 1;
  if (admission == ADMIT_QUEUED) {
    call_hold(call);
    call->older = b->calls;
    call->newer = NULL;
    if (b->calls) b->calls->newer = call;
    b->calls = call;
    for (size_t i = 0; i < count; ++i) {
      struct task *t = &call->tasks[i];
      t->queued = time_now();
      *(b->last ? &b->last->next : &b->first) = t;
      b->last = t;
    }
    b->queued += count;
    metrics_set(&b->server->metrics, METRIC_QUEUED, (int64_t)b->queued);
    pthread_cond_signal(&b->work);
  }
  pthread_mutex_unlock(&b->lock);
  return admission;
}

// Slots that a client uses, which a text of it would share with others.
static uint32_t share_of(const struct batch *b, uint64_t client) {
  uint32_t share = 0;
  for (uint32_t i = 0; i < b->slots; ++i) share += b->tasks[i] && b->tasks[i]->call->client == client;
  return share;
}

// Takes the text that has waited longest among those of the client that has the fewest slots. NULL: none can begin.
static struct task *take(struct batch *b) {
  struct task *before = NULL, *best_before = NULL, *best = NULL;
  uint32_t least = UINT32_MAX;
  for (struct task *t = b->first; t && least; before = t, t = t->next) {
    if (t->leader) continue;
    if (best && t->call->client == best->call->client) continue;
    const uint32_t share = share_of(b, t->call->client);
    if (share >= least) continue;
    least = share;
    best = t;
    best_before = before;
  }
  if (!best) return NULL;
  *(best_before ? &best_before->next : &b->first) = best->next;
  if (b->last == best) b->last = best_before;
  best->next = NULL;
  --b->queued;
  metrics_set(&b->server->metrics, METRIC_QUEUED, (int64_t)b->queued);
  return best;
}

// ---------------------------------------------------------------- the end of a text

static void leave_calls(struct batch *b, struct call *call) {
  *(call->newer ? &call->newer->older : &b->calls) = call->older;
  if (call->older) call->older->newer = call->newer;
}

void batch_end(struct batch *b, struct task *t, enum ending ending) {
  struct call *call = t->call;
  if (t->slot >= 0) {
    b->tasks[t->slot] = NULL;
    t->slot = -1;
    metrics_add(&b->server->metrics, METRIC_RUNNING, -1);
    const double seconds = time_now() - t->begun;
    b->task_seconds = b->task_seconds > 0 ? 0.9 * b->task_seconds + 0.1 * seconds : seconds;
  }
  pthread_mutex_lock(&call->lock);
  t->ending = ending;
  const size_t left = --call->unfinished;
  call_wake(call);
  pthread_mutex_unlock(&call->lock);
  if (left) return;
  pthread_mutex_lock(&b->lock);
  leave_calls(b, call);
  pthread_mutex_unlock(&b->lock);
  call_drop(call);
}

// Ends the texts of a call that wait or run.
static void end_call(struct batch *b, struct call *call, enum ending ending) {
  call_hold(call);
  pthread_mutex_lock(&b->lock);
  struct task *ended = NULL, *before = NULL;
  for (struct task *t = b->first, *next; t; t = next) {
    next = t->next;
    if (t->call != call) {
      before = t;
      continue;
    }
    *(before ? &before->next : &b->first) = next;
    if (b->last == t) b->last = before;
    t->next = ended;
    ended = t;
    --b->queued;
  }
  metrics_set(&b->server->metrics, METRIC_QUEUED, (int64_t)b->queued);
  pthread_mutex_unlock(&b->lock);
  for (struct task *next; ended; ended = next) {
    next = ended->next;
    batch_end(b, ended, ending);
  }
  for (uint32_t i = 0; i < b->slots; ++i)
    if (b->tasks[i] && b->tasks[i]->call == call) batch_end(b, b->tasks[i], ending);
  call_drop(call);
}

// The other texts of the call may wait for this one.
void batch_fail(struct batch *b, struct task *t, int status, const char *text) {
  pthread_mutex_lock(&t->call->lock);
  problem_set(&t->call->problem, status, "", "", "%s", text);
  pthread_mutex_unlock(&t->call->lock);
  end_call(b, t->call, END_FAILED);
}

// ---------------------------------------------------------------- lost clients

// libmicrohttpd does not look at suspended connections. A client that shuts down its sending side has gone too.
static bool lost(struct call *call) {
  pthread_mutex_lock(&call->lock);
  if (call->connection && !call->gone) {
    struct pollfd poll_one = {.fd = call->socket, .events = POLLRDHUP};
    if (poll(&poll_one, 1, 0) > 0 && poll_one.revents & (POLLRDHUP | POLLHUP | POLLERR)) call->gone = true;
  }
  const bool gone = call->gone;
  pthread_mutex_unlock(&call->lock);
  return gone;
}

static void end_lost(struct batch *b) {
  struct call *found[64];
  size_t count = 0;
  pthread_mutex_lock(&b->lock);
  for (struct call *c = b->calls; c && count < 64; c = c->older)
    if (lost(c)) found[count++] = c; // only this thread ends calls, so they stay
  pthread_mutex_unlock(&b->lock);
  for (size_t i = 0; i < count; ++i) {
    metrics_add(&b->server->metrics, METRIC_CANCELLED, 1);
    end_call(b, found[i], END_CANCELLED);
  }
}

// ---------------------------------------------------------------- draining

static void end_all(struct batch *b) {
  for (uint32_t i = 0; i < b->slots; ++i)
    if (b->tasks[i]) slot_finish(b, b->tasks[i], END_SHUTDOWN);
  for (;;) {
    pthread_mutex_lock(&b->lock);
    struct call *call = b->calls;
    pthread_mutex_unlock(&b->lock);
    if (!call) return;
    end_call(b, call, END_SHUTDOWN);
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
  const bool idle = !b->calls;
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

static void run_checks(struct batch *b) {
  pthread_mutex_lock(&b->lock);
  while (b->checks) {
    struct check *check = b->checks;
    b->checks = check->next;
    pthread_mutex_unlock(&b->lock);
    slot_check(b, check);
    pthread_mutex_lock(&b->lock);
    check->done = true;
    pthread_cond_broadcast(&b->checked);
  }
  pthread_mutex_unlock(&b->lock);
}

static void admit(struct batch *b) {
  for (uint32_t i = 0; i < b->slots; ++i) {
    if (b->tasks[i]) continue;
    pthread_mutex_lock(&b->lock);
    struct task *t = take(b);
    pthread_mutex_unlock(&b->lock);
    if (!t) return;
    slot_begin(b, i, t);
  }
}

static bool busy(const struct batch *b) { return b->calls || b->checks; }

static void *work(void *user) {
  struct batch *b = user;
  for (;;) {
    pthread_mutex_lock(&b->lock);
    while (!b->stop && !busy(b)) pthread_cond_wait(&b->work, &b->lock);
    const bool end = b->stop && !busy(b), late = (b->draining && time_now() > b->deadline) || b->stop || b->code;
    pthread_mutex_unlock(&b->lock);
    if (end) return NULL;
    run_checks(b);
    end_lost(b);
    if (late) {
      end_all(b);
      continue;
    }
    admit(b);
    slots_read(b);
    end_lost(b);
    slots_step(b);
  }
}

// ---------------------------------------------------------------- begin and end

static void free_batch(struct batch *b) {
  deltaic_session_free(b->session);
  pthread_mutex_destroy(&b->lock);
  pthread_cond_destroy(&b->work);
  pthread_cond_destroy(&b->checked);
  free(b->logits);
  free(b->drawn);
  free(b);
}

int batch_start(struct server *server, struct batch **out) {
  struct batch *b = must_resize(NULL, sizeof *b);
  *b = (struct batch){.server = server, .most_queued = server->options.queue};
  pthread_mutex_init(&b->lock, NULL);
  pthread_cond_init(&b->work, NULL);
  pthread_cond_init(&b->checked, NULL);
  int code = slots_open(b);
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

bool batch_check_state(struct batch *b, struct blob *state, uint64_t *tokens, char text[256]) {
  struct check check = {.state = state, .text = text};
  pthread_mutex_lock(&b->lock);
  if (b->stop) {
    pthread_mutex_unlock(&b->lock);
    return false;
  }
  check.next = b->checks;
  b->checks = &check;
  pthread_cond_signal(&b->work);
  while (!check.done) pthread_cond_wait(&b->checked, &b->lock);
  pthread_mutex_unlock(&b->lock);
  *tokens = check.tokens;
  return check.good;
}
