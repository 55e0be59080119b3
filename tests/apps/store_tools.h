// store_tools.h: a Redis of the test's own, and models whose states it gets.
#ifndef STORE_TOOLS_H
#define STORE_TOOLS_H
#include "common.h"
#include "platform.h"
#include "serve_store.h"
#include "store_pack.h"
#include "store_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/types.h>

#include <cmocka.h>

#define TINY TESTS_DIR "/vectors/models/"
enum { KINDS = 3, GROWS = 2, TEXT = 600 };
extern const char *const kinds[KINDS]; // models; the states of kinds[GROWS] grow
extern int32_t text[TEXT];             // tokens
extern int port;                       // free for the test, as the next one is
extern pid_t server;                   // the Redis; 0: none

// Opens the device. False: it failed.
bool store_tools_open(const char *name);
void store_tools_close(void);

// A connection to the Redis on the port; NULL: it does not answer.
struct wire *open_wire(int at, bool tls, struct wire_time *time);
// A Redis on the port; more: options behind those that all have, ended by NULL.
void start(int at, const char *const *more);
void end(int with);            // a signal
int stop_server(void **state); // the same, as a test's end
double since(uint64_t begin);  // seconds

struct replica {
  deltaic_model *model;
  deltaic_session *session;
  deltaic_model_info info;
  struct state_layout layout;
};

struct replica open_replica(const char *path);
void close_replica(struct replica *r);
// The state after tokens first ... stop - 1 are read too.
struct blob *read_to(struct replica *r, size_t first, size_t stop);
struct blob *blob_of(const char *bytes);
// The state's bytes with their checksum, which the caller frees.
char *flat_state(const struct blob *state);
#endif
