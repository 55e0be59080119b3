// json.h: JSON from memory through jansson, with sentences that name the file and the key. Every getter takes the
// object, a key, and a default for a missing or null key; a value of the wrong type or out of range is kept as the
// reader's first error (BAD_FILE) and the default returned, so that a config reads straight down.
#ifndef JSON_H
#define JSON_H
#include "status.h"
#include <jansson.h>

struct json_reader {
  const char *file;      // named in messages
  deltaic_status status; // first error
};

// Text of `bytes` bytes -> a value that the caller releases with json_decref(). Depth, duplicates and size are checked.
deltaic_status json_parse(const char *file, const char *text, size_t bytes, json_t **out);

bool json_bool(struct json_reader *r, const json_t *object, const char *key, bool missing);
int64_t json_int(struct json_reader *r, const json_t *object, const char *key, int64_t missing, int64_t low,
                 int64_t high);
double json_number(struct json_reader *r, const json_t *object, const char *key, double missing, double low,
                   double high); // refuses NaN and infinities
const char *json_text(struct json_reader *r, const json_t *object, const char *key, const char *missing);
bool json_present(const json_t *object, const char *key); // there and not null
#endif
