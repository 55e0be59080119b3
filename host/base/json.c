// json: parses with jansson, and has getters that keep the first error. See json.h.
#include "json.h"

#include <math.h>
#include <string.h>

// jansson itself limits the depth (2048 levels), and refuses numbers that overflow and strings with \u0000.
deltaic_status json_parse(const char *file, const char *text, size_t bytes, json_t **out) {
  *out = NULL;
  json_error_t error;
  json_t *value = json_loadb(text ? text : "", text ? bytes : 0, JSON_REJECT_DUPLICATES, &error);
  if (value) {
    *out = value;
    return DELTAIC_OK;
  }
  if (json_error_code(&error) == json_error_out_of_memory) return fail_memory("a JSON file", bytes);
  return fail(DELTAIC_BAD_FILE, "%s: line %d, column %d: %s", file, error.line, error.column, error.text);
}

const char *json_name(const struct json_reader *r, const char *key) {
  for (const struct json_alias *a = r->aliases; a && a->key; a++)
    if (!strcmp(a->key, key)) return a->name;
  return key;
}

static const char *kind(const json_t *value) {
  switch (json_typeof(value)) {
  case JSON_OBJECT: return "an object";
  case JSON_ARRAY: return "a list";
  case JSON_STRING: return "a string";
  case JSON_INTEGER: return "an integer";
  case JSON_REAL: return "a number with a fraction";
  case JSON_TRUE: return "true";
  case JSON_FALSE: return "false";
  case JSON_NULL: break;
  }
  return "null";
}

static void wrong_kind(struct json_reader *r, const char *key, const char *wanted, const json_t *value) {
  if (r->status) return;
  r->status = fail(DELTAIC_BAD_FILE, "%s: %s must be %s, not %s", r->file, json_name(r, key), wanted, kind(value));
}

// The value; NULL: missing or null.
static const json_t *get(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return value && !json_is_null(value) ? value : NULL;
}

bool json_present(const json_t *object, const char *key) { return get(object, key) != NULL; }

bool json_bool(struct json_reader *r, const json_t *object, const char *key, bool missing) {
  const json_t *value = get(object, key);
  if (!value) return missing;
  if (json_is_boolean(value)) return json_is_true(value);
  wrong_kind(r, key, "true or false", value);
  return missing;
}

// Python writes 2.0 for some integers: accepts a real without a fraction if doubles are exact at its size.
static bool whole(const json_t *value, int64_t *out) {
  if (json_is_integer(value)) {
    *out = json_integer_value(value);
    return true;
  }
  double real = json_is_real(value) ? json_real_value(value) : 0.5;
  if (real != floor(real) || fabs(real) > 9007199254740992.0) return false;
  *out = (int64_t)real;
  return true;
}

int64_t json_int(struct json_reader *r, const json_t *object, const char *key, int64_t missing, int64_t low,
                 int64_t high) {
  const json_t *value = get(object, key);
  int64_t number;
  if (!value) return missing;
  if (!whole(value, &number)) {
    wrong_kind(r, key, "an integer", value);
    return missing;
  }
  if (number >= low && number <= high) return number;
  if (!r->status)
    r->status = fail(DELTAIC_BAD_FILE, "%s: %s is %lld and must be from %lld to %lld", r->file, json_name(r, key),
                     (long long)number, (long long)low, (long long)high);
  return missing;
}

double json_number(struct json_reader *r, const json_t *object, const char *key, double missing, double low,
                   double high) {
  const json_t *value = get(object, key);
  if (!value) return missing;
  if (!json_is_number(value)) {
    wrong_kind(r, key, "a number", value);
    return missing;
  }
  double number = json_number_value(value);
  if (isfinite(number) && number >= low && number <= high) return number;
  if (!r->status)
    r->status =
        fail(DELTAIC_BAD_FILE, "%s: %s is %g and must be from %g to %g", r->file, json_name(r, key), number, low, high);
  return missing;
}

const char *json_text(struct json_reader *r, const json_t *object, const char *key, const char *missing) {
  const json_t *value = get(object, key);
  if (!value) return missing;
  if (json_is_string(value)) return json_string_value(value);
  wrong_kind(r, key, "a string", value);
  return missing;
}
