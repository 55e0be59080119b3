// serve_reply.h: answers as OpenAI's clients read them.
#ifndef SERVE_REPLY_H
#define SERVE_REPLY_H
#include "serve_call.h"

// An answer that is made at once.
struct reply {
  unsigned status;
  const char *type; // of the content
  char *body;       // allocated
  size_t bytes;
  uint32_t retry; // seconds, for Retry-After; 0: none
};
struct reply reply_json(unsigned status, char *text); // takes over the text; NULL: no memory
struct reply reply_refuse(const struct problem *problem);
// /v1/states, but for PUT: serve_states.c. id: NULL for the collection. *taken grows by the memory for requests that
// the answer takes.
struct reply states_answer(struct server *server, const char *method, const char *id, const struct bytes *body,
                           size_t *taken);
// /v1/responses/ID: GET and DELETE.
struct reply responses_answer(struct server *server, const char *method, const char *id, size_t *taken);
// PUT: makes the turn and the state of the check, which the caller drops. False: *out is why it is refused.
struct check;
bool states_put(struct server *server, const char *id, const struct bytes *body, struct check *check,
                struct reply *out);
struct reply states_put_checked(struct server *server, const char *id, struct check *check); // the batcher has done it

void reply_log(const struct problem *problem);      // what is the server's own fault, on standard error
char *reply_problem(const struct problem *problem); // logs it; the error object; the caller frees it; NULL: no memory
// The whole answer of a call whose texts are finished. The caller frees it; NULL: no memory.
char *reply_call(struct call *call);
// Adds to call->out what has come since the last time; under the call's lock. Sets call->ended behind the last.
bool stream_more(struct call *call); // false: no memory

// What reply.c and stream.c share. Each returns a new reference.
json_t *reply_text(const struct bytes *text);
json_t *reply_usage(const struct call *call);
json_t *reply_timings(const struct task *task);
json_t *reply_notes(const struct task *task, size_t from, size_t to); // "logprobs" of a choice
json_t *reply_response(const struct call *call, enum ending ending);  // of /v1/responses; END_NONE: it goes on
const char *reply_status(enum ending ending);                         // its status
json_t *reply_item(const struct call *call, const char *status);      // its message
json_t *reply_part(const struct call *call);                          // its text
json_t *reply_thinking(const struct call *call, const char *status);  // its thinking, an item before the message
json_t *reply_thinking_part(const struct call *call);                 // the thinking's text
bool reply_says(const struct call *call); // whether it has a message: text, or neither thinking nor text
const char *reply_finish(enum ending ending);                         // finish_reason
#endif
