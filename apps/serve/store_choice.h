// store_choice.h: the options of the store behind the memory, and opening it as they say.
#ifndef STORE_CHOICE_H
#define STORE_CHOICE_H
#include "engine.h"
#include "serve_store.h"

struct store_choice {
  const char *url, *ca, *check;
  uint32_t bits, size_mib, expiry, timeout_ms, queue_mib;
};
#define STORE_CHOICE_DEFAULTS                                                                                          \
  { .bits = 32, .size_mib = 8192, .expiry = 86400, .timeout_ms = 2000, .queue_mib = 512 }
#define STORE_OPTIONS(c)                                                                                               \
  HEADING("states that outlive this process"),                                                                         \
      TEXT(                                                                                                            \
          0, "store", "URL", &(c)->url,                                                                                \
          "Redis or Valkey: redis://[user:password@]host[:port][/db], rediss:// with TLS; without it $DELTAIC_STORE. " \
          "A password that the URL lacks comes from $DELTAIC_STORE_PASSWORD"),                                         \
      TEXT(0, "store-ca", "FILE", &(c)->ca,                                                                            \
           "certificates (PEM) to trust for rediss://; without it, those of the system"),                              \
      COUNT(0, "store-expiry", "S", &(c)->expiry, 0, 1u << 30,                                                         \
            "values that nobody used for this time are removed from the store; 0: never"),                             \
      COUNT(0, "store-size", "MIB", &(c)->size_mib, 0, 1u << 30,                                                       \
            "the most memory of this model's values there; the least recently used are removed first; 0: no limit"),   \
      COUNT(0, "store-bits", "N", &(c)->bits, 8, 32, "bits of stored numbers: 32 (exact), 16 or 8"),                   \
      COUNT(0, "store-timeout", "MS", &(c)->timeout_ms, 10, 60000,                                                     \
            "the longest wait for the store per value; each 8 MiB transferred give one second of it back"),            \
      COUNT(0, "store-queue", "MIB", &(c)->queue_mib, 1, 1u << 20,                                                     \
            "the most data that may wait to be written, for instance while the store is down; the oldest is dropped"), \
      TEXT(0, "check-store", "FILE", &(c)->check,                                                                      \
           "measure, on this text, the loss in nats and the bytes of 32, 16 and 8 bits; then end")

// Each returns an exit code and prints a message if it is not EXIT_OK.
int store_choice_check(const struct store_choice *choice); // before anything is opened
// Sets the store behind, if one is asked for.
int store_choice_open(const struct store_choice *choice, const struct engine *engine, struct store *store,
                      struct metrics *metrics);
// --check-store
int store_check(const struct store_choice *choice, const struct engine *engine, const deltaic_tokenizer *tokenizer);
#endif
