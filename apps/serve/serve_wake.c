// serve_wake: wakes connections. To wake one takes libmicrohttpd's locks and a system call, for which the thread that
// owns the session does not wait.
#include "serve_wake.h"
#include "common.h"
#include "platform.h"

#include <stdlib.h>
#include <string.h>

struct waker {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t work;

  // Under the lock.
  struct call **calls;
  size_t count, room;
  bool stop;
};

static void wake_all(struct call *const *calls, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    pthread_mutex_lock(&calls[i]->lock);
    call_wake(calls[i]);
    pthread_mutex_unlock(&calls[i]->lock);
    call_drop(calls[i]);
  }
}

static void *work(void *user) {
  struct waker *w = user;
  struct call **calls = NULL; // the list that is empty, for the exchange
  size_t room = 0;
  pthread_mutex_lock(&w->lock);
  for (;;) {
    while (!w->stop && !w->count) pthread_cond_wait(&w->work, &w->lock);
    if (!w->count) break;
    struct call **full = w->calls;
    const size_t count = w->count, full_room = w->room;
    w->calls = calls;
    w->room = room;
    w->count = 0;
    pthread_mutex_unlock(&w->lock);
    wake_all(full, count);
    calls = full;
    room = full_room;
    pthread_mutex_lock(&w->lock);
  }
  pthread_mutex_unlock(&w->lock);
  free(calls);
  return NULL;
}

struct waker *waker_start(void) {
  struct waker *w = must_resize(NULL, sizeof *w);
  *w = (struct waker){0};
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->work, NULL);
  if (!platform_thread(&w->thread, 1 << 20, work, w)) return w;
  pthread_mutex_destroy(&w->lock);
  pthread_cond_destroy(&w->work);
  free(w);
  return NULL;
}

void waker_add(struct waker *w, struct call *const *calls, size_t n) {
  pthread_mutex_lock(&w->lock);
  if (n > w->room - w->count) {
    const size_t room = 2 * w->room + n;
    struct call **grown = realloc(w->calls, room * sizeof *grown);
    if (grown) {
      w->calls = grown;
      w->room = room;
    }
  }
  const bool fit = n <= w->room - w->count;
  if (fit) {
    if (n) memcpy(w->calls + w->count, calls, n * sizeof *calls);
    w->count += n;
    pthread_cond_signal(&w->work);
  }
  pthread_mutex_unlock(&w->lock);
  if (!fit) wake_all(calls, n);
}

void waker_stop(struct waker *w) {
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  w->stop = true;
  pthread_cond_signal(&w->work);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  pthread_mutex_destroy(&w->lock);
  pthread_cond_destroy(&w->work);
  free(w->calls);
  free(w);
}
