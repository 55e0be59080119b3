// pool: a parallel for. The caller of pool_run() works too, as worker 0. It does not wait for a worker that wakes up
// too late to help, so a loop takes at most the last task longer than it would on one thread.
#include "pool.h"
#include "platform.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
  THREADS_MAX = 256,
  YIELDS = 60,            // tries before a thread sleeps: about 30 us, the time between two small operations
  STACK_BYTES = 4u << 20, // tasks keep tiles of 0.2 MiB on the stack, and the host program's static TLS is taken from
                          // it
};

struct worker {
  struct pool *pool;
  pthread_t thread;
  uint32_t index;
};

struct pool {
  pthread_mutex_t turn; // held by the thread whose loop runs
  pthread_mutex_t lock; // protects everything below that is not atomic
  pthread_cond_t wake, done;
  bool stop, open; // open: workers may still join the loop
  atomic_uint generation;
  atomic_uint active; // workers in the loop, without the caller
  atomic_uint_fast64_t next;
  uint64_t n;
  pool_task task;
  void *context;
  uint32_t count; // workers
  struct worker workers[];
};

static void work(struct pool *pool, uint32_t worker) {
  for (uint64_t i; (i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < pool->n;)
    pool->task(pool->context, i, worker);
}

// The caller holds the lock. Waits a little before sleeping, since waking a thread costs a system call.
static void wait_for_loop(struct pool *pool, unsigned seen) {
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < YIELDS && atomic_load(&pool->generation) == seen; i++) sched_yield();
  pthread_mutex_lock(&pool->lock);
  while (!pool->stop && atomic_load(&pool->generation) == seen) pthread_cond_wait(&pool->wake, &pool->lock);
}

static void *worker_main(void *argument) {
  struct worker *self = argument;
  struct pool *pool = self->pool;
  pthread_mutex_lock(&pool->lock);
  for (unsigned seen = 0;;) {
    wait_for_loop(pool, seen);
    if (pool->stop) break;
    seen = atomic_load(&pool->generation);
    if (!pool->open) continue;
    atomic_fetch_add(&pool->active, 1);
    pthread_mutex_unlock(&pool->lock);
    work(pool, self->index);
    pthread_mutex_lock(&pool->lock);
    if (atomic_fetch_sub(&pool->active, 1) == 1) pthread_cond_signal(&pool->done);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

void pool_run(struct pool *pool, uint64_t n, pool_task task, void *context) {
  if (!pool->count || n == 1) {
    for (uint64_t i = 0; i < n; i++) task(context, i, 0);
    return;
  }
  pthread_mutex_lock(&pool->turn);
  pthread_mutex_lock(&pool->lock);
  pool->n = n;
  pool->task = task;
  pool->context = context;
  atomic_store(&pool->next, 0);
  pool->open = true;
  atomic_fetch_add(&pool->generation, 1);
  pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->lock);

  work(pool, 0);

  pthread_mutex_lock(&pool->lock);
  pool->open = false;
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < YIELDS && atomic_load(&pool->active); i++) sched_yield();
  pthread_mutex_lock(&pool->lock);
  while (atomic_load(&pool->active)) pthread_cond_wait(&pool->done, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
  pthread_mutex_unlock(&pool->turn);
}

static void start_workers(struct pool *pool, uint32_t count) {
  for (; pool->count < count; pool->count++) {
    struct worker *w = &pool->workers[pool->count];
    *w = (struct worker){.pool = pool, .index = pool->count + 1};
    if (platform_thread(&w->thread, STACK_BYTES, worker_main, w)) break;
  }
}

uint32_t pool_threads_for(uint32_t threads) {
  if (!threads) threads = platform_cores();
  return threads > THREADS_MAX ? THREADS_MAX : threads;
}

deltaic_status pool_create(uint32_t threads, struct pool **out) {
  threads = pool_threads_for(threads);
  uint64_t bytes = sizeof(struct pool) + (threads - 1) * sizeof(struct worker);
  struct pool *pool = calloc(1, bytes);
  if (!pool) return fail_memory("thread pool", bytes);
  pthread_mutex_init(&pool->turn, NULL);
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->wake, NULL);
  pthread_cond_init(&pool->done, NULL);
  start_workers(pool, threads - 1);
  *out = pool;
  return DELTAIC_OK;
}

void pool_free(struct pool *pool) {
  if (!pool) return;
  pthread_mutex_lock(&pool->lock);
  pool->stop = true;
  pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->lock);
  for (uint32_t i = 0; i < pool->count; i++) pthread_join(pool->workers[i].thread, NULL);
  pthread_cond_destroy(&pool->done);
  pthread_cond_destroy(&pool->wake);
  pthread_mutex_destroy(&pool->lock);
  pthread_mutex_destroy(&pool->turn);
  free(pool);
}

uint32_t pool_threads(const struct pool *pool) { return pool->count + 1; }
