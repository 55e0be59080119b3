// store_redis.h: the store behind the memory (serve_store.h) in Redis or Valkey, for states that outlive processes.
//
// Keys are deltaic:{FINGERPRINT}:t:ID for turns, :s:ID for states and :b:ID for blocks of caches (store_pack.h), so
// that models never meet. Every value repeats the fingerprint, and one that has another is refused.
#ifndef STORE_REDIS_H
#define STORE_REDIS_H
#include "deltaic.h"
#include "serve_store.h"

struct store_redis_options {
  const char *url;      // redis:// or rediss://
  const char *password; // where the URL has none; may be NULL
  const char *ca;       // certificates to trust; NULL: those of the system
  uint32_t bits;        // of stored numbers: 32, 16 or 8
  uint32_t seconds;     // entries that nobody used for so long expire; 0: never
  uint32_t timeout_ms;  // the longest wait of an operation (store_wire.h)
  uint64_t bytes;       // the most that the model's values may take there; 0: as much as the store lets
  uint64_t queue_bytes; // the most that may wait to be written
  uint64_t fingerprint; // of the model
};

// Returns NULL, or a sentence about what is wrong with the options. A store that does not answer is not wrong: it is
// said in the log and tried again. session: tells how its states are laid out; not used afterwards.
const char *store_redis_open(const struct store_redis_options *options, deltaic_session *session,
                             struct metrics *metrics, struct store_behind *out);
#endif
