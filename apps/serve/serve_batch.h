// serve_batch.h: the thread that owns device, model and session, and computes all texts together.
#ifndef SERVE_BATCH_H
#define SERVE_BATCH_H
#include "serve_call.h"

struct batch;
// Opens the session and starts the thread. Prints a message and returns an exit code.
int batch_start(struct server *server, struct batch **out);
enum admission { ADMIT_QUEUED, ADMIT_FULL, ADMIT_ENDING };
// Queues all texts of a call, or none. *retry: when it is full, the seconds after which there may be room.
enum admission batch_submit(struct batch *batch, struct call *call, uint32_t *retry);
// Lets running texts end for so many seconds, then ends them where they are, and saves all of them.
void batch_drain(struct batch *batch, double seconds);
bool batch_idle(struct batch *batch);              // no text waits or runs
bool batch_failed(struct batch *batch, int *code); // the device was lost
int batch_stop(struct batch *batch);               // returns an exit code
uint64_t batch_context(const struct batch *batch); // the most tokens of a text
// Checks that a state is one of this model, and how many tokens it has read. Waits for the batcher.
bool batch_check_state(struct batch *batch, struct blob *state, uint64_t *tokens, char text[256]);
#endif
