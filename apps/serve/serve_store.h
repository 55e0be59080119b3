// serve_store.h: keeps finished turns and their states in host memory, the least recently used leaving first, and
// behind it in a store that outlives the process, when there is one.
#ifndef SERVE_STORE_H
#define SERVE_STORE_H
#include "serve_blob.h"
#include "serve_metrics.h"

// A turn (serve_turn.h) has a few bytes a token and is kept under its response's id. A state is what
// deltaic_sequence_save() writes, without the checksum, and is kept under turn.state: the id of the turn that left it.
// Blocks that several states share count once. A state that is gone can be computed from its turn; a turn that is gone
// cannot be continued.
enum store_kind { STORE_TURN, STORE_STATE, STORE_KINDS };

enum { STORE_KEY = 80 }; // bytes of the longest key with its NUL; keys have letters, digits, _ and -
bool store_key_valid(const char *key);

enum store_found { STORE_FOUND, STORE_ABSENT, STORE_DOWN };
extern const char store_down[]; // what a client is told then

// A store behind the memory (--store). Functions may be called by several threads at once. put and drop must not wait:
// they queue their work and drop it when the queue is full. get waits no longer than a bound of its own.
struct store_behind {
  void *self;
  // Holds the blob as it needs. after: the key of the state that this one continues, whose caches it shares; or NULL.
  void (*put)(void *self, enum store_kind kind, const char *key, const char *after, struct blob *blob);
  enum store_found (*get)(void *self, enum store_kind kind, const char *key, struct blob **blob);
  void (*drop)(void *self, enum store_kind kind, const char *key);
  // Waits until the turns or states that were put before are written or given up, at most so long.
  void (*settle)(void *self, enum store_kind kind, uint32_t milliseconds);
  // How long it takes to get a state behind so many tokens, by what was measured; 0: not known.
  double (*seconds)(void *self, uint64_t tokens);
  void (*close)(void *self); // writes what is queued, within a bound of its own
};

struct store_options {
  uint64_t bytes[STORE_KINDS]; // the most bytes of each kind in memory
  uint32_t seconds;            // entries that nobody used for so long expire; 0: never
};

struct store;
struct store *store_open(const struct store_options *options, struct metrics *metrics); // NULL: no memory
void store_set_behind(struct store *store, struct store_behind behind);                 // before its first use
void store_close(struct store *store);
// Replaces what the key had. What is larger than all of the memory for its kind goes to the store behind only.
void store_put(struct store *store, enum store_kind kind, const char *key, struct blob *blob);
// The same for a state that continues that of `after`, so that what both have in common is stored once.
void store_put_after(struct store *store, const char *key, const char *after, struct blob *blob);
bool store_outlives(const struct store *store); // there is a store behind, which may take long to answer
// Waits until the store behind has what was put, so that no crash loses it; at most so long.
void store_settle(struct store *store, enum store_kind kind, uint32_t milliseconds);
// Holds the blob for the caller; NULL unless it is found. What comes from behind is kept in memory. DOWN: the store
// behind does not answer.
enum store_found store_get(struct store *store, enum store_kind kind, const char *key, struct blob **blob);
// The same for the state of a text of so many tokens; NULL also where that is computed sooner than it would come from
// behind, by the measured speeds.
struct blob *store_get_state(struct store *store, const char *key, uint64_t tokens);
// Holds a state that is in memory; NULL: it is not there. Does not count as a use.
struct blob *store_peek(struct store *store, const char *key);
bool store_in_memory(struct store *store, enum store_kind kind, const char *key); // does not count as a use
void store_drop(struct store *store, enum store_kind kind, const char *key);
// Puts the state into the store behind, gets it once and drops it, so that store_get_state() knows how long that takes.
// Waits no longer than a bound, and keeps nothing in memory.
void store_measure(struct store *store, const char *key, struct blob *state);
// Removes from memory what has expired.
void store_expire(struct store *store);
#endif
