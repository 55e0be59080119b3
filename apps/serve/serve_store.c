// serve_store: a table of keys for each kind, with a list from the most to the least recently used.
#include "serve_store.h"
#include "platform.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1 << 14 };

struct entry {
  struct entry *chain;         // the next of its bucket
  struct entry *newer, *older; // by use
  enum store_kind kind;
  uint64_t used; // seconds of the clock
  struct blob *blob;
  char key[STORE_KEY];
};

struct shelf {
  struct entry *buckets[BUCKETS];
  struct entry *newest, *oldest;
  uint64_t bytes;
};

struct store {
  pthread_mutex_t lock;
  struct store_options options;
  struct metrics *metrics;
  struct store_behind behind;
  struct shelf shelves[STORE_KINDS];
};

// ---------------------------------------------------------------- the table

bool store_key_valid(const char *key) {
  size_t length = strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
  return length && length < STORE_KEY && !key[length];
}

static uint64_t seconds_now(void) { return platform_clock_ns() / 1000000000u; }

static size_t bucket_of(const char *key) {
  uint64_t hash = 14695981039346656037u; // FNV-1a
  for (; *key; ++key) hash = (hash ^ (uint8_t)*key) * 1099511628211u;
  return (hash ^ hash >> 32) % BUCKETS;
}

// The most memory that an entry for the blob can take.
static uint64_t most_cost(const struct blob *blob) { return blob->size + sizeof(struct entry) + sizeof *blob; }

// by 1: the memory that a new entry takes. by -1: what a removed entry gives back, negative. A block counts for the
// first state that has it.
static int64_t count_cost(const struct blob *blob, int by) {
  int64_t cost = sizeof(struct entry) + sizeof *blob;
  const struct blocks *b = blob->blocks;
  if (!b) return by * (cost + (int64_t)blob->size);
  cost += (int64_t)b->fixed->size;
  for (size_t i = 0; i < b->count; ++i) {
    const uint32_t before = b->items[i]->kept;
    b->items[i]->kept += (uint32_t)by;
    if (!before || !b->items[i]->kept) cost += (int64_t)b->items[i]->size;
  }
  return by * cost;
}

static void count_entry(struct store *store, const struct entry *e, int by) {
  struct shelf *shelf = &store->shelves[e->kind];
  const int64_t cost = count_cost(e->blob, by);
  shelf->bytes += (uint64_t)cost;
  metrics_add(store->metrics, METRIC_MEMORY_BYTES, cost);
  if (e->kind == STORE_STATE) metrics_add(store->metrics, METRIC_MEMORY_STATES, by);
}

static struct entry **place_of(struct shelf *shelf, const char *key) {
  struct entry **at = &shelf->buckets[bucket_of(key)];
  while (*at && strcmp((*at)->key, key) != 0) at = &(*at)->chain;
  return at;
}

static void unlink_use(struct shelf *shelf, struct entry *e) {
  *(e->newer ? &e->newer->older : &shelf->newest) = e->older;
  *(e->older ? &e->older->newer : &shelf->oldest) = e->newer;
}

static void link_newest(struct shelf *shelf, struct entry *e) {
  e->newer = NULL;
  e->older = shelf->newest;
  *(shelf->newest ? &shelf->newest->newer : &shelf->oldest) = e;
  shelf->newest = e;
  e->used = seconds_now();
}

static void remove_entry(struct store *store, struct entry *e) {
  struct shelf *shelf = &store->shelves[e->kind];
  *place_of(shelf, e->key) = e->chain;
  unlink_use(shelf, e);
  count_entry(store, e, -1);
  blob_drop(e->blob);
  free(e);
}

static void keep(struct store *store, enum store_kind kind, const char *key, struct blob *blob) {
  struct shelf *shelf = &store->shelves[kind];
  const uint64_t most = store->options.bytes[kind];
  struct entry *e = *place_of(shelf, key);
  if (e) remove_entry(store, e);
  e = most_cost(blob) <= most ? malloc(sizeof *e) : NULL;
  if (!e) return;
  *e = (struct entry){.kind = kind, .blob = blob_hold(blob)};
  memcpy(e->key, key, strlen(key) + 1);
  struct entry **place = place_of(shelf, key);
  e->chain = *place;
  *place = e;
  link_newest(shelf, e);
  count_entry(store, e, 1);
  while (shelf->bytes > most) { // ends, because the new entry alone has room
    remove_entry(store, shelf->oldest);
    metrics_add(store->metrics, METRIC_MEMORY_EVICTED, 1);
  }
}

// ---------------------------------------------------------------- what others call

struct store *store_open(const struct store_options *options, struct metrics *metrics) {
  struct store *store = calloc(1, sizeof *store);
  if (!store) return NULL;
  store->options = *options;
  store->metrics = metrics;
  pthread_mutex_init(&store->lock, NULL);
  return store;
}

void store_set_behind(struct store *store, struct store_behind behind) { store->behind = behind; }

void store_close(struct store *store) {
  if (!store) return;
  if (store->behind.close) store->behind.close(store->behind.self);
  for (int kind = 0; kind < STORE_KINDS; ++kind)
    while (store->shelves[kind].oldest) remove_entry(store, store->shelves[kind].oldest);
  pthread_mutex_destroy(&store->lock);
  free(store);
}

static void put(struct store *store, enum store_kind kind, const char *key, const char *after, struct blob *blob) {
  pthread_mutex_lock(&store->lock);
  keep(store, kind, key, blob);
  pthread_mutex_unlock(&store->lock);
  if (store->behind.put) store->behind.put(store->behind.self, kind, key, after, blob);
}

void store_put(struct store *store, enum store_kind kind, const char *key, struct blob *blob) {
  put(store, kind, key, NULL, blob);
}

void store_put_after(struct store *store, const char *key, const char *after, struct blob *blob) {
  put(store, STORE_STATE, key, after, blob);
}

bool store_outlives(const struct store *store) { return store->behind.get; }

void store_settle(struct store *store, enum store_kind kind, uint32_t milliseconds) {
  if (store->behind.settle) store->behind.settle(store->behind.self, kind, milliseconds);
}

const char store_down[] = "the store does not answer; try again";

enum store_found store_get(struct store *store, enum store_kind kind, const char *key, struct blob **blob) {
  *blob = NULL;
  pthread_mutex_lock(&store->lock);
  struct entry *e = *place_of(&store->shelves[kind], key);
  if (e) {
    *blob = blob_hold(e->blob);
    unlink_use(&store->shelves[kind], e);
    link_newest(&store->shelves[kind], e);
  }
  pthread_mutex_unlock(&store->lock);
  if (*blob) return STORE_FOUND;
  if (!store->behind.get) return STORE_ABSENT;
  const enum store_found found = store->behind.get(store->behind.self, kind, key, blob);
  if (found != STORE_FOUND) return found;
  pthread_mutex_lock(&store->lock);
  keep(store, kind, key, *blob);
  pthread_mutex_unlock(&store->lock);
  return STORE_FOUND;
}

static bool sooner_computed(struct store *store, const char *key, uint64_t tokens) {
  const int64_t rate = metrics_get(store->metrics, METRIC_PROMPT_RATE);
  if (!store->behind.seconds || rate <= 0 || store_in_memory(store, STORE_STATE, key)) return false;
  return store->behind.seconds(store->behind.self, tokens) > (double)tokens / (double)rate;
}

struct blob *store_get_state(struct store *store, const char *key, uint64_t tokens) {
  const bool skipped = sooner_computed(store, key, tokens);
  struct blob *blob = NULL;
  if (!skipped) store_get(store, STORE_STATE, key, &blob);
  if (!blob) metrics_add(store->metrics, skipped ? METRIC_STATES_SKIPPED : METRIC_STATES_COMPUTED, 1);
  return blob;
}

void store_measure(struct store *store, const char *key, struct blob *state) {
  enum { WRITE_MS = 2000 };
  const struct store_behind *b = &store->behind;
  struct blob *got = NULL;
  b->put(b->self, STORE_STATE, key, NULL, state);
  b->settle(b->self, STORE_STATE, WRITE_MS);
  b->get(b->self, STORE_STATE, key, &got);
  b->drop(b->self, STORE_STATE, key);
  blob_drop(got);
}

struct blob *store_peek(struct store *store, const char *key) {
  pthread_mutex_lock(&store->lock);
  const struct entry *e = *place_of(&store->shelves[STORE_STATE], key);
  struct blob *blob = e ? blob_hold(e->blob) : NULL;
  pthread_mutex_unlock(&store->lock);
  return blob;
}

bool store_in_memory(struct store *store, enum store_kind kind, const char *key) {
  pthread_mutex_lock(&store->lock);
  bool there = *place_of(&store->shelves[kind], key);
  pthread_mutex_unlock(&store->lock);
  return there;
}

void store_drop(struct store *store, enum store_kind kind, const char *key) {
  pthread_mutex_lock(&store->lock);
  struct entry *e = *place_of(&store->shelves[kind], key);
  if (e) remove_entry(store, e);
  pthread_mutex_unlock(&store->lock);
  if (store->behind.drop) store->behind.drop(store->behind.self, kind, key);
}

void store_expire(struct store *store) {
  const uint64_t now = seconds_now();
  pthread_mutex_lock(&store->lock);
  for (int kind = 0; kind < STORE_KINDS && store->options.seconds; ++kind)
    for (struct shelf *shelf = &store->shelves[kind];
         shelf->oldest && now - shelf->oldest->used > store->options.seconds;)
      remove_entry(store, shelf->oldest);
  pthread_mutex_unlock(&store->lock);
}
