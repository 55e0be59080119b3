// serve_http.h: what the files that answer over HTTP share.
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H
#include "serve_batch.h"
#include "serve_keys.h"

// An answer that is made at once.
struct reply {
  unsigned status;
  const char *type; // of the content
  char *body;       // allocated
  size_t bytes;
  uint32_t retry; // seconds, for Retry-After; 0: none
};
struct reply reply_json(unsigned status, char *text); // takes the text over; NULL: no memory
struct reply reply_refuse(const struct problem *problem);

// /v1/states: serve_states.c. id: NULL for the collection.
struct reply states_answer(struct server *server, const char *method, const char *id, const struct bytes *body);
#endif
