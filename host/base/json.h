// json.h: reads JSON from memory with jansson; messages name the file and the key. Every getter takes an object, a key,
// and a default for a missing or null key. If a value has the wrong type or is out of range, the getter returns the
// default, and the reader keeps its first error (BAD_FILE). So code that reads a config needs no checks.
#ifndef JSON_H
#define JSON_H
#include "status.h"
#include <jansson.h>

struct json_alias {
  const char *key;
  char name[96];
};
struct json_reader {
  const char *file;                 // for messages
  deltaic_status status;            // first error
  const struct json_alias *aliases; // what messages call keys, ended by a NULL key; NULL: as they are
};
const char *json_name(const struct json_reader *r, const char *key);

// Parses text of `bytes` bytes; the caller releases *out with json_decref(). Checks depth, duplicates and size.
deltaic_status json_parse(const char *file, const char *text, size_t bytes, json_t **out) INSIDE(json_parse);

bool json_bool(struct json_reader *r, const json_t *object, const char *key, bool missing);
int64_t json_int(struct json_reader *r, const json_t *object, const char *key, int64_t missing, int64_t low,
                 int64_t high) INSIDE(json_int);
double json_number(struct json_reader *r, const json_t *object, const char *key, double missing, double low,
                   double high) INSIDE(json_number); // refuses NaN and infinities
const char *json_text(struct json_reader *r, const json_t *object, const char *key, const char *missing);
bool json_present(const json_t *object, const char *key) INSIDE(json_present); // not missing and not null
#endif
