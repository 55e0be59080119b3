// serve_worker.h: threads that prepare long requests, so that those of the connections go on sending.
#ifndef SERVE_WORKER_H
#define SERVE_WORKER_H
#include <stdbool.h>

struct job {
  void (*run)(void *user, bool ending); // ending: there is no time left for it
  void *user;
  struct job *next;
};

struct workers;
struct workers *workers_start(void); // NULL: no memory, or no threads
void workers_add(struct workers *workers, struct job *job);
void workers_stop(struct workers *workers); // runs what waits, and what comes later, as ending
void workers_free(struct workers *workers); // after they were stopped
#endif
