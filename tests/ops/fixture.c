// A safetensors file: 8 bytes of header length, a JSON object name -> {dtype, shape, data_offsets}, then the data.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { CASES = 64 };

struct fixture {
  uint8_t *bytes;
  const uint8_t *data;
  size_t data_bytes;
  json_t *header;
  const char *cases[CASES];
};

static uint8_t *read_all(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("%s: cannot be opened", path);
  fseek(file, 0, SEEK_END);
  *bytes = (size_t)ftell(file);
  rewind(file);
  uint8_t *data = malloc(*bytes);
  assert_non_null(data);
  assert_int_equal(fread(data, 1, *bytes, file), *bytes);
  fclose(file);
  return data;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

struct fixture *fixture_open(const char *path) {
  char full[1024];
  size_t bytes, count = 0;
  uint64_t header_bytes;
  snprintf(full, sizeof full, TESTS_DIR "/%s", path);
  struct fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  f->bytes = read_all(full, &bytes);
  assert_true(bytes > 8);
  memcpy(&header_bytes, f->bytes, 8);
  assert_true(header_bytes <= bytes - 8);
  f->header = json_loadb((const char *)f->bytes + 8, header_bytes, 0, NULL);
  assert_non_null(f->header);
  f->data = f->bytes + 8 + header_bytes;
  f->data_bytes = bytes - 8 - header_bytes;
  const char *key;
  json_t *value;
  json_object_foreach(json_object_get(f->header, "__metadata__"), key, value) {
    assert_true(count < CASES - 1);
    f->cases[count++] = key;
  }
  qsort(f->cases, count, sizeof *f->cases, compare_names);
  return f;
}

void fixture_close(struct fixture *f) {
  json_decref(f->header);
  free(f->bytes);
  free(f);
}

bool fixture_has(const struct fixture *f, const char *tensor) { return json_object_get(f->header, tensor); }

double *fixture_values(const struct fixture *f, const char *tensor, size_t count) {
  json_t *entry = json_object_get(f->header, tensor), *offsets = json_object_get(entry, "data_offsets");
  if (!entry) fail_msg("%s: not in the fixture", tensor);
  bool bf16 = !strcmp(json_string_value(json_object_get(entry, "dtype")), "BF16");
  size_t first = (size_t)json_integer_value(json_array_get(offsets, 0));
  size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
  assert_true(end <= f->data_bytes);
  assert_int_equal(end - first, count * (bf16 ? 2 : 4));
  double *values = malloc(count * sizeof *values);
  assert_non_null(values);
  for (size_t i = 0; i < count; i++) {
    uint32_t bits = 0;
    float value;
    if (bf16)
      memcpy((char *)&bits + 2, f->data + first + 2 * i, 2);
    else
      memcpy(&bits, f->data + first + 4 * i, 4);
    memcpy(&value, &bits, sizeof value);
    values[i] = value;
  }
  return values;
}

const char *fixture_case(const struct fixture *f, size_t i) { return i < CASES ? f->cases[i] : NULL; }

double fixture_number(const struct fixture *f, const char *name, const char *key) {
  json_t *text = json_object_get(json_object_get(f->header, "__metadata__"), name);
  json_t *object = json_loads(json_string_value(text), 0, NULL), *value = json_object_get(object, key);
  if (!value) fail_msg("%s: no %s in its metadata", name, key);
  double number = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
  json_decref(object);
  return number;
}
