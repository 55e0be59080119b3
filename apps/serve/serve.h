// serve.h: declares what the server's files share.
#ifndef SERVE_H
#define SERVE_H
#include "engine.h"
#include "serve_store.h"
#include "store_choice.h"

#include <stdatomic.h>

struct serve_options {
  struct engine_options engine;
  const char *host, *keys;
  uint32_t port, slots, queue, stall, slice;
  uint32_t connections, body_kib, timeout, drain;
  uint32_t memory_mib, expiry, tokens, working_mib;
  const char *name, *template;
  bool reproducible;
  struct store_choice choice;
};

struct server {
  struct serve_options options;
  struct engine engine;
  deltaic_tokenizer *tokenizer;
  struct metrics metrics;
  struct store *store;
  struct batch *batch;
  const deltaic_template *template; // NULL: the model has none
  deltaic_template_info chat;
  int32_t chat_end;          // the token that ends a message; -1: it is text
  const char *name;          // the model's, for clients
  size_t state_bytes;        // of a sequence, at most
  struct state_layout layout;
  int64_t started;           // seconds since 1970
  deltaic_sampling sampling; // the model's
  atomic_size_t working;     // bytes that requests use, about
};

size_t working_most(const struct server *server); // --working in bytes
// Host memory that a request uses until it is answered: serve_call.c. False: the sum would be too large.
bool working_take(struct server *server, size_t *taken, size_t bytes);
extern const char working_full[]; // what a client is told then
void working_give(struct server *server, size_t *taken);

struct http;
// Begins to listen. Prints a message and returns an exit code.
int http_start(struct server *server, struct http **out);
void http_stop(struct http *http);
void http_tick(struct http *http); // several times a second: drops clients that are too slow
bool http_answers(struct http *http); // whether a request that is complete has not got all of its answer
#endif
