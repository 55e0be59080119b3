// store_redis_values.h: what the store's keys hold, over one connection.
#ifndef STORE_REDIS_VALUES_H
#define STORE_REDIS_VALUES_H
#include "store_pack.h"
#include "store_redis.h"
#include "store_wire.h"

struct values {
  struct wire *wire;
  const struct state_layout *layout;
  struct metrics *metrics;
  const struct store_redis_options *options;
};

// All return false when the connection is broken, and true when the store answered, whatever it said. A value that is
// not there, damaged or another model's leaves *blob as it is. after: "" or the key of the state before.
bool values_ping(const struct values *v);
bool values_get_turn(const struct values *v, const char *key, struct blob **blob);
bool values_get_state(const struct values *v, const char *key, struct blob **blob);
bool values_put_turn(const struct values *v, const char *key, const struct blob *blob);
bool values_put_state(const struct values *v, const char *key, const char *after, struct blob *blob);
bool values_drop(const struct values *v, enum store_kind kind, const char *key);
#endif
