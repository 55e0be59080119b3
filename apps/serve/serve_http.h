// serve_http.h: what the listener and the exchanges share.
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H
#include "serve_batch.h"
#include "serve_keys.h"
#include "serve_reply.h"
#include "serve_worker.h"

#include <microhttpd.h>

struct visitor { // a connection
  struct visitor *before, *after;
  int socket;
  _Atomic double since;    // when its request began; 0: it is being answered
  _Atomic double answered; // when its answer was complete here; 0: not yet
};

struct http {
  struct server *server;
  struct MHD_Daemon *daemon;
  struct keys keys;
  struct workers *workers;
  pthread_mutex_t lock;
  struct visitor *visitors;
  size_t visitor_count;
  atomic_int_least64_t said; // the second of the last line in the log
};

// Called by libmicrohttpd's threads: with each part of a request, and when an answer is sent or the client has gone.
enum MHD_Result exchange_answer(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                                const char *version, const char *body, size_t *body_bytes, void **state);
void exchange_end(void *user, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code);

// Where a request comes from: serve_origin.c.
// Without keys: the Host of the request if it is a name that may be anybody's; NULL: it is not.
const char *origin_foreign_name(const struct http *http, struct MHD_Connection *connection);
bool origin_foreign(struct MHD_Connection *connection);  // a page of another origin asks
uint64_t origin_hash(struct MHD_Connection *connection); // of the client's address

// Answers about the server: serve_about.c. name: of a model, or NULL.
struct reply about_health(void);
struct reply about_metrics(struct http *http);
struct reply about_models(struct http *http, const char *name);
struct reply about_page(void);
#endif
