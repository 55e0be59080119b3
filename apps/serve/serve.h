// serve.h: declares what the server's files share.
#ifndef SERVE_H
#define SERVE_H
#include "engine.h"
#include "serve_store.h"
#include "store_choice.h"

struct serve_options {
  struct engine_options engine;
  const char *host, *keys;
  uint32_t port, slots, queue, stall, slice;
  uint32_t connections, body_kib, timeout, drain;
  uint32_t memory_mib, expiry;
  bool reproducible;
  struct store_choice choice;
};

struct server {
  struct serve_options options;
  struct engine engine;
  deltaic_tokenizer *tokenizer;
  struct metrics metrics;
  struct store *store;
};

struct http;
// Begins to listen. Prints a message and returns an exit code.
int http_start(struct server *server, struct http **out);
void http_stop(struct http *http);
#endif
