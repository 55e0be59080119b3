// serve_worker: a queue of jobs and the threads that run them, in order.
#include "serve_worker.h"
#include "platform.h"

#include <stdlib.h>

enum { WORKERS = 2 };

struct workers {
  pthread_mutex_t lock;
  pthread_cond_t work;
  struct job *first, *last;
  bool stop;
  pthread_t threads[WORKERS];
  int count;
};

static void *work(void *user) {
  struct workers *w = user;
  for (;;) {
    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->stop) pthread_cond_wait(&w->work, &w->lock);
    struct job *job = w->first;
    const bool ending = w->stop;
    if (job) w->first = job->next;
    pthread_mutex_unlock(&w->lock);
    if (!job) return NULL;
    job->run(job->user, ending);
  }
}

struct workers *workers_start(void) {
  struct workers *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->work, NULL);
  while (w->count < WORKERS && !platform_thread(&w->threads[w->count], 4 << 20, work, w)) ++w->count;
  if (w->count) return w;
  workers_free(w);
  return NULL;
}

void workers_add(struct workers *w, struct job *job) {
  job->next = NULL;
  pthread_mutex_lock(&w->lock);
  const bool stop = w->stop;
  if (!stop) {
    *(w->first ? &w->last->next : &w->first) = job;
    w->last = job;
    pthread_cond_signal(&w->work);
  }
  pthread_mutex_unlock(&w->lock);
  if (stop) job->run(job->user, true);
}

void workers_stop(struct workers *w) {
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  w->stop = true;
  pthread_cond_broadcast(&w->work);
  pthread_mutex_unlock(&w->lock);
  while (w->count) pthread_join(w->threads[--w->count], NULL);
}

void workers_free(struct workers *w) {
  if (!w) return;
  pthread_mutex_destroy(&w->lock);
  pthread_cond_destroy(&w->work);
  free(w);
}
