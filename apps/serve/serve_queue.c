// serve_queue: the texts that wait for a slot, the end of texts, and clients that have gone.
#define _GNU_SOURCE // POLLRDHUP
#include "common.h"
#include "serve_slots.h"

#include <poll.h>
#include <stdlib.h>

// ---------------------------------------------------------------- waiting

// Whether so many more texts of the client may wait: at most --queue, less half of what other clients have there. So a
// client that takes all it can leaves room for the next one.
static bool has_room(const struct batch *b, uint64_t client, size_t count) {
  size_t own = 0;
  for (const struct task *t = b->first; t; t = t->next) own += t->call->client == client;
  return own + count <= b->most_queued - (b->queued - own) / 2;
}

enum admission batch_submit(struct batch *b, struct call *call, uint32_t *retry) {
  const size_t count = call->task_count;
  pthread_mutex_lock(&b->lock);
  enum admission admission = b->draining || b->stop ? ADMIT_ENDING : ADMIT_QUEUED;
  if (!admission && !has_room(b, call->client, count)) admission = ADMIT_FULL;
  if (!admission && resident_missed(b, call)) admission = ADMIT_MISSED;
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
      t->queued = call->arrived;
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
struct task *queue_take(struct batch *b) {
  struct task *before = NULL, *best_before = NULL, *best = NULL;
  uint32_t least = UINT32_MAX;
  for (struct task *t = b->first; t && least; before = t, t = t->next) {
    if (t->leader || resident_copied(b, t)) continue;
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
  if (t->aside >= 0) {
    if (move_active(b, (uint32_t)t->aside)) move_give_up(b, (uint32_t)t->aside);
    resident_set(b, (uint32_t)t->aside, (struct resident){0});
  }
  t->aside = -1;
  if (t->slot >= 0) {
    if (!b->residents[t->slot].holder) move_drop(b, (uint32_t)t->slot); // else another text waits for the move
    b->tasks[t->slot] = NULL;
    t->slot = -1;
    metrics_add(&b->server->metrics, METRIC_RUNNING, -1);
    const double seconds = time_now() - t->begun;
    pthread_mutex_lock(&b->lock);
    b->task_seconds = b->task_seconds > 0 ? 0.9 * b->task_seconds + 0.1 * seconds : seconds;
    pthread_mutex_unlock(&b->lock);
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

// Ends the texts of a call that wait or run. A text whose last token is drawn is kept, although its client has gone:
// slots_step() ends it. True: a text was ended.
static bool end_call(struct batch *b, struct call *call, enum ending ending) {
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
  bool some = ended;
  for (struct task *next; ended; ended = next) {
    next = ended->next;
    batch_end(b, ended, ending);
  }
  for (uint32_t i = 0; i < b->slots; ++i) {
    struct task *t = b->tasks[i];
    if (!t || t->call != call || (t->due && ending == END_CANCELLED)) continue;
    batch_end(b, t, ending);
    some = true;
  }
  call_drop(call);
  return some;
}

void queue_fail(struct batch *b, struct call *call, int status, const char *text) {
  pthread_mutex_lock(&call->lock);
  problem_set(&call->problem, status, "", "", "%s", text);
  pthread_mutex_unlock(&call->lock);
  end_call(b, call, END_FAILED);
}

// ---------------------------------------------------------------- lost clients

enum { LEFT = POLLRDHUP | POLLHUP | POLLERR };

bool client_left(int socket) {
  struct pollfd watched = {.fd = socket, .events = POLLRDHUP};
  return poll(&watched, 1, 0) > 0 && watched.revents & LEFT;
}

static bool grow(struct watch *w) {
  const size_t room = 2 * w->room + 64;
  struct call **calls = realloc(w->calls, room * sizeof *calls);
  if (calls) w->calls = calls;
  struct pollfd *polls = calls ? realloc(w->polls, room * sizeof *polls) : NULL;
  if (!polls) return false;
  w->polls = polls;
  w->room = room;
  return true;
}

// libmicrohttpd does not look at suspended connections. A client that shuts down its sending side has gone too. Only
// this thread ends calls, so they stay between the locks. A connection may be resumed there, and closed; then its
// socket may be another client's, but its own client has gone.
void queue_end_lost(struct batch *b) {
  struct watch *w = &b->watch;
  size_t count = 0;
  pthread_mutex_lock(&b->lock);
  for (struct call *c = b->calls; c && (count < w->room || grow(w)); c = c->older) {
    pthread_mutex_lock(&c->lock);
    w->calls[count] = c;
    w->polls[count++] = (struct pollfd){.fd = c->connection ? c->socket : -1, .events = POLLRDHUP};
    pthread_mutex_unlock(&c->lock);
  }
  pthread_mutex_unlock(&b->lock);
  const bool some = count && poll(w->polls, count, 0) > 0;
  for (size_t i = 0; i < count; ++i) {
    struct call *call = w->calls[i];
    pthread_mutex_lock(&call->lock);
    if (some && w->polls[i].revents & LEFT) call->gone = true;
    const bool gone = call->gone;
    pthread_mutex_unlock(&call->lock);
    if (gone && end_call(b, call, END_CANCELLED)) metrics_add(&b->server->metrics, METRIC_CANCELLED, 1);
  }
}
