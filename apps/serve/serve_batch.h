// serve_batch.h: the batch thread. It owns the device, the model and the session, and computes all texts together.
#ifndef SERVE_BATCH_H
#define SERVE_BATCH_H
#include "serve_call.h"

struct batch;
// Opens the session and starts the thread. Prints a message and returns an exit code.
int batch_start(struct server *server, struct batch **out);
enum admission { ADMIT_QUEUED, ADMIT_FULL, ADMIT_MISSED, ADMIT_ENDING };
// Queues all texts of a call, or none of them. ADMIT_FULL: the client has no room there for all; *retry is an estimate
// of the seconds until it has. ADMIT_MISSED: a state that batch_has_state() found has since left its slot; call
// call_fetch_states() and submit again. ADMIT_ENDING: the server is shutting down.
enum admission batch_submit(struct batch *batch, struct call *call, uint32_t *retry);
// Whether a free slot has the state of this key. Marks it as just used, so that other texts take other slots first.
bool batch_has_state(struct batch *batch, const char *key);
bool client_left(int socket); // or shut down its sending side
// Begins to shut down. Running texts may continue for so many seconds; then they are cut. All of them are kept.
void batch_drain(struct batch *batch, double seconds);
bool batch_idle(struct batch *batch);              // no text or check waits, and none runs
bool batch_failed(struct batch *batch, int *code); // the device was lost
int batch_stop(struct batch *batch);               // ends the thread and frees the batch; returns an exit code
uint64_t batch_context(const struct batch *batch); // the most tokens of a text

// A state that a client sent.
struct check {
  struct check *next;
  struct blob *turn, *state;
  int socket;                   // the client's
  void (*done)(struct check *); // the batch thread calls it when the check has ended, and does not use it afterwards
  void *user;
  bool good, left; // left: it was not checked: the client left while no slot was free, or the server ends
  uint64_t tokens; // that the state has read
  char text[256];  // why it is not good
};
// Checks that the state belongs to this model, as soon as a slot is free. ADMIT_FULL: as many wait as there are slots.
enum admission batch_check_state(struct batch *batch, struct check *check);
#endif
