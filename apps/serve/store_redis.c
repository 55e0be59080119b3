// store_redis: the connections to the store, what happens while it does not answer, and the threads that write.
#include "store_redis.h"
#include "common.h"
#include "platform.h"
#include "store_redis_values.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { IDLE_WIRES = 4, CLOSE_MS = 10000, FIRST_PAUSE_MS = 200, LAST_PAUSE_MS = 5000 };

// What is to be written: a value, or with blob NULL its end.
struct job {
  struct job *next;
  char key[STORE_KEY], after[STORE_KEY];
  struct blob *blob;
  int tries; // that failed
};

struct queue {
  struct redis_store *store;
  enum store_kind kind;
  struct job *first, **last;
  uint64_t put, done; // jobs so far
  uint64_t bytes;     // of those that are not done
  pthread_t thread;
  bool started;
};

struct redis_store {
  struct store_redis_options options;
  struct store_address address;
  struct state_layout layout;
  struct metrics *metrics;
  pthread_mutex_t lock;
  pthread_cond_t changed; // of the queues
  struct queue queues[STORE_KINDS];
  struct wire *idle[IDLE_WIRES];
  size_t idle_count;
  uint64_t down_until, pause_ms; // of platform_clock_ns(); pause 0: the store answers
  bool closing;
  uint64_t asked;      // calls of redis_seconds()
  double byte_seconds; // of states that were read; 0: none yet
};

// ---------------------------------------------------------------- connections

static uint64_t now_ms(void) { return platform_clock_ns() / 1000000; }

static void store_failed(struct redis_store *s, const char *why) {
  pthread_mutex_lock(&s->lock);
  const bool news = !s->pause_ms;
  s->pause_ms = s->pause_ms ? s->pause_ms * 2 : FIRST_PAUSE_MS;
  if (s->pause_ms > LAST_PAUSE_MS) s->pause_ms = LAST_PAUSE_MS;
  s->down_until = now_ms() + s->pause_ms;
  pthread_mutex_unlock(&s->lock);
  metrics_add(s->metrics, METRIC_STORE_ERRORS, 1);
  metrics_set(s->metrics, METRIC_STORE_UP, 0);
  if (news)
    complain(EXIT_OK, "the store %s:%s does not answer: %s; going on without it", s->address.host, s->address.port,
             why);
}

static void store_answered(struct redis_store *s) {
  pthread_mutex_lock(&s->lock);
  const bool news = s->pause_ms;
  s->pause_ms = 0;
  pthread_mutex_unlock(&s->lock);
  metrics_set(s->metrics, METRIC_STORE_UP, 1);
  if (news) complain(EXIT_OK, "the store %s:%s answers again", s->address.host, s->address.port);
}

static void close_idle(struct redis_store *s) {
  pthread_mutex_lock(&s->lock);
  while (s->idle_count) wire_close(s->idle[--s->idle_count]);
  pthread_mutex_unlock(&s->lock);
}

// A connection, new or one that has answered before. NULL: there is none for now.
static struct wire *wire_take(struct redis_store *s, struct wire_time *time) {
  struct wire *wire = NULL;
  char error[WIRE_ERROR];
  pthread_mutex_lock(&s->lock);
  if (s->idle_count) wire = s->idle[--s->idle_count];
  const bool down = s->pause_ms && now_ms() < s->down_until;
  pthread_mutex_unlock(&s->lock);
  if (wire) wire_set_time(wire, time);
  if (wire || down) return wire;
  const struct wire_options options = {&s->address, s->options.ca, time};
  wire = wire_open(&options, error);
  if (!wire) store_failed(s, error);
  return wire;
}

static void wire_give(struct redis_store *s, struct wire *wire) {
  pthread_mutex_lock(&s->lock);
  const bool kept = s->idle_count < IDLE_WIRES && !s->closing;
  if (kept) s->idle[s->idle_count++] = wire;
  pthread_mutex_unlock(&s->lock);
  if (!kept) wire_close(wire);
}

// Calls `work` with a connection, and once more where that fails and time is left, with a new one: the store may have
// been restarted. false: the store does not answer.
static bool with_wire(struct redis_store *s, bool (*work)(const struct values *values, void *user), void *user) {
  struct wire_time time = wire_time_of(s->options.timeout_ms);
  bool last = false;
  for (int again = 0; !last; again++) {
    struct values values = {.layout = &s->layout, .metrics = s->metrics, .options = &s->options};
    values.wire = wire_take(s, &time);
    if (!values.wire) return false;
    if (work(&values, user)) {
      store_answered(s);
      wire_give(s, values.wire);
      return true;
    }
    if (!again) close_idle(s); // they are as old as this one
    last = again || !time.left;
    if (last) store_failed(s, wire_error(values.wire));
    wire_close(values.wire);
  }
  return false;
}

// ---------------------------------------------------------------- reading

struct reading {
  enum store_kind kind;
  const char *key;
  struct blob *blob;
};

static bool read_value(const struct values *values, void *user) {
  struct reading *r = user;
  return r->kind == STORE_TURN ? values_get_turn(values, r->key, &r->blob) : values_get_state(values, r->key, &r->blob);
}

// Of a state that came: moving means, a tenth of the newest.
static void remember_speed(struct redis_store *s, double seconds, size_t bytes) {
  pthread_mutex_lock(&s->lock);
  const double share = s->byte_seconds > 0 ? 0.1 : 1;
  s->byte_seconds += share * (seconds / (double)bytes - s->byte_seconds);
  pthread_mutex_unlock(&s->lock);
}

static enum store_found redis_get(void *self, enum store_kind kind, const char *key, struct blob **blob) {
  struct redis_store *s = self;
  struct reading r = {.kind = kind, .key = key};
  const uint64_t begin = platform_clock_ns();
  if (!with_wire(s, read_value, &r)) return STORE_DOWN;
  metrics_add(s->metrics, r.blob ? METRIC_STORE_HITS : METRIC_STORE_MISSES, 1);
  if (!r.blob) return STORE_ABSENT;
  metrics_add(s->metrics, METRIC_STORE_HIT_BYTES, (int64_t)r.blob->size);
  if (kind == STORE_STATE) remember_speed(s, (double)(platform_clock_ns() - begin) * 1e-9, r.blob->size);
  *blob = r.blob;
  return STORE_FOUND;
}

// Every 32nd answer is "not known", so that a store that was slow for a while is tried again.
static double redis_seconds(void *self, uint64_t tokens) {
  struct redis_store *s = self;
  const uint64_t bytes = state_bytes(&s->layout, tokens);
  pthread_mutex_lock(&s->lock);
  const double seconds = ++s->asked % 32 ? s->byte_seconds * (double)bytes : 0;
  pthread_mutex_unlock(&s->lock);
  return seconds;
}

// ---------------------------------------------------------------- writing

struct writing {
  enum store_kind kind;
  const struct job *job;
};

static bool write_value(const struct values *values, void *user) {
  const struct writing *w = user;
  const struct job *j = w->job;
  if (!j->blob) return values_drop(values, w->kind, j->key);
  return w->kind == STORE_TURN ? values_put_turn(values, j->key, j->blob)
                               : values_put_state(values, j->key, j->after, j->blob);
}

static bool read_nothing(const struct values *values, void *user) {
  (void)user;
  return values_ping(values);
}

static uint64_t job_bytes(const struct job *j) { return sizeof *j + (j->blob ? j->blob->size : 0); }

// With the lock: takes the first job away.
static struct job *next_job(struct queue *q) {
  struct job *j = q->first;
  q->first = j->next;
  if (!q->first) q->last = &q->first;
  return j;
}

// With the lock: bytes that wait to be written.
static uint64_t waiting(const struct redis_store *s) {
  uint64_t bytes = 0;
  for (int k = 0; k < STORE_KINDS; k++) bytes += s->queues[k].bytes;
  metrics_set(s->metrics, METRIC_STORE_WAITING, (int64_t)bytes);
  return bytes;
}

// With the lock: the job is written or given up.
static void job_end(struct queue *q, struct job *j) {
  struct redis_store *s = q->store;
  q->done++;
  q->bytes -= job_bytes(j);
  waiting(s);
  pthread_cond_broadcast(&s->changed);
  blob_drop(j->blob);
  free(j);
}

// With the lock: the queue's oldest job is not written.
static void give_up(struct queue *q) {
  job_end(q, next_job(q));
  metrics_add(q->store->metrics, METRIC_STORE_DROPPED, 1);
}

// With the lock: waits, until the store may be tried again or the queue closes.
static void pause_writing(struct redis_store *s) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 100000000;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  pthread_cond_timedwait(&s->changed, &s->lock, &until);
}

// While the store does not answer, jobs wait; the queue's bound drops the oldest.
static void *write_queue(void *user) {
  struct queue *q = user;
  struct redis_store *s = q->store;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    while (!q->first && !s->closing) pthread_cond_wait(&s->changed, &s->lock);
    if (s->closing) break;
    if (s->pause_ms && now_ms() < s->down_until) {
      pause_writing(s);
      continue;
    }
    struct job *j = next_job(q);
    pthread_mutex_unlock(&s->lock);
    struct writing w = {q->kind, j};
    // What again and again ends connections to a store that answers otherwise is given up: a value it finds too large.
    const bool answers = j->tries > 2 && with_wire(s, read_nothing, NULL);
    const bool written = with_wire(s, write_value, &w);
    pthread_mutex_lock(&s->lock);
    const bool again = !written && !answers && !s->closing;
    if (!written && !again) metrics_add(s->metrics, METRIC_STORE_DROPPED, 1);
    if (again) { // it stays the first
      j->tries++;
      j->next = q->first;
      if (!q->first) q->last = &j->next;
      q->first = j;
      continue;
    }
    job_end(q, j);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

// Whether a later job than the first is to write a value.
static bool has_newer(const struct queue *q) {
  const struct job *j = q->first ? q->first->next : NULL;
  while (j && !j->blob) j = j->next;
  return j != NULL;
}

static void enqueue(struct redis_store *s, enum store_kind kind, const char *key, const char *after,
                    struct blob *blob) {
  struct queue *q = &s->queues[kind];
  struct job *j = calloc(1, sizeof *j);
  if (!j) return;
  snprintf(j->key, sizeof j->key, "%s", key);
  snprintf(j->after, sizeof j->after, "%s", after ? after : "");
  if (blob) j->blob = blob_hold(blob);
  pthread_mutex_lock(&s->lock);
  *q->last = j;
  q->last = &j->next;
  q->put++;
  q->bytes += job_bytes(j);
  // A state can be computed again; so states leave first. The newest one stays: it may be larger than all the room.
  struct queue *states = &s->queues[STORE_STATE], *turns = &s->queues[STORE_TURN];
  while (waiting(s) > s->options.queue_bytes && has_newer(states)) give_up(states);
  while (turns->bytes > s->options.queue_bytes && turns->first) give_up(turns);
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

static void redis_put(void *self, enum store_kind kind, const char *key, const char *after, struct blob *blob) {
  enqueue(self, kind, key, after, blob);
}

static void redis_drop(void *self, enum store_kind kind, const char *key) { enqueue(self, kind, key, NULL, NULL); }

// patient: also while the store does not answer.
static void settle(struct redis_store *s, enum store_kind kind, uint32_t milliseconds, bool patient) {
  const uint64_t until = now_ms() + milliseconds;
  pthread_mutex_lock(&s->lock);
  const struct queue *q = &s->queues[kind];
  for (const uint64_t want = q->put; q->done < want && (patient || !s->pause_ms) && now_ms() < until;) pause_writing(s);
  pthread_mutex_unlock(&s->lock);
}

static void redis_settle(void *self, enum store_kind kind, uint32_t milliseconds) {
  settle(self, kind, milliseconds, false);
}

// ---------------------------------------------------------------- open and close

static void redis_close(void *self) {
  struct redis_store *s = self;
  const uint64_t until = now_ms() + CLOSE_MS;
  for (int k = 0; k < STORE_KINDS; k++) {
    const uint64_t now = now_ms();
    settle(s, k, now < until ? (uint32_t)(until - now) : 0, true);
  }
  pthread_mutex_lock(&s->lock);
  s->closing = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  for (int k = 0; k < STORE_KINDS; k++) {
    struct queue *q = &s->queues[k];
    if (q->started) pthread_join(q->thread, NULL);
    while (q->first) give_up(q);
  }
  while (s->idle_count) wire_close(s->idle[--s->idle_count]);
  state_layout_free(&s->layout);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

const char *store_redis_open(const struct store_redis_options *options, deltaic_session *session,
                             struct metrics *metrics, struct store_behind *out) {
  struct redis_store *s = calloc(1, sizeof *s);
  if (!s) return "no memory for the store";
  s->options = *options;
  s->metrics = metrics;
  const char *wrong = store_address_parse(options->url, &s->address);
  if (!wrong && !s->address.password[0] && options->password)
    snprintf(s->address.password, sizeof s->address.password, "%s", options->password);
  if (!wrong && !state_layout_read(session, options->fingerprint, &s->layout)) wrong = deltaic_last_error();
  if (wrong) {
    free(s);
    return wrong;
  }
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  for (int k = 0; k < STORE_KINDS; k++) {
    struct queue *q = &s->queues[k];
    *q = (struct queue){.store = s, .kind = (enum store_kind)k, .last = &q->first};
    q->started = !platform_thread(&q->thread, 1u << 20, write_queue, q);
    if (!q->started) wrong = "no thread for the store can be started";
  }
  if (wrong) {
    redis_close(s);
    return wrong;
  }
  with_wire(s, read_nothing, NULL);
  *out = (struct store_behind){s, redis_put, redis_get, redis_drop, redis_settle, redis_seconds, redis_close};
  return NULL;
}
