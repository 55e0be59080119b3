// store_wire.h: a connection to Redis or Valkey, with TLS or without. hiredis writes commands and reads replies.
// store_wire opens the socket itself, because every operation has a time limit and hiredis has no TLS before 1.0.
#ifndef STORE_WIRE_H
#define STORE_WIRE_H
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// redis://[user:password@]host[:port][/db], or rediss:// for TLS.
struct store_address {
  char host[256], port[8], user[128], password[256];
  uint32_t db;
  bool tls;
};
// Returns NULL, or a sentence about what is wrong, which never repeats the password.
const char *store_address_parse(const char *url, struct store_address *out);

// How long an operation may still wait for the store, in nanoseconds: `most` at its beginning. Only waiting takes from
// it, so that this process may compute between two commands.
struct wire_time {
  uint64_t left, most;
};
// Each MiB transferred gives 1/WIRE_LEAST_MIB s back, up to `most`. Large values thus get more time, a store that sends
// byte by byte does not, and a silent one is given up after `most`.
enum { WIRE_LEAST_MIB = 8 };
struct wire_time wire_time_of(uint32_t milliseconds);

struct wire;
struct wire_options {
  const struct store_address *address;
  const char *ca;         // a PEM file of certificates that are trusted; NULL: those of the system
  struct wire_time *time; // of opening, and of the commands until wire_set_time()
};
enum { WIRE_ERROR = 256 };

// Connects, authenticates and selects the database. Returns NULL and a sentence in `error` (WIRE_ERROR bytes).
struct wire *wire_open(const struct wire_options *options, char *error);
void wire_close(struct wire *wire);
// All following commands together take from this time.
void wire_set_time(struct wire *wire, struct wire_time *time);

// One argument of a command.
struct wire_arg {
  const void *data;
  size_t bytes;
};
struct wire_arg wire_text(const char *text);
// Queues a command of at most WIRE_ARGS arguments, and writes large ones at once. false: the connection is broken;
// wire_error() says why, and only wire_close() is allowed.
enum { WIRE_ARGS = 96 };
bool wire_send(struct wire *wire, const struct wire_arg *args, size_t count);
// Sends what is queued and waits for the reply of the first command that has none yet. freeReplyObject() frees it; a
// reply may be an error of the server's. NULL: the connection is broken.
redisReply *wire_reply(struct wire *wire);
redisReply *wire_command(struct wire *wire, const struct wire_arg *args, size_t count);
const char *wire_error(const struct wire *wire);
#endif
