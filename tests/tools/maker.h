// maker.h: checkpoints for tests, made from names and shapes, or from another checkpoint.
#ifndef MAKER_H
#define MAKER_H
#include "checkpoint.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Last: it needs some of the headers above, and its macro fail() must not meet the declaration of ours.
#include <cmocka.h>

// A checkpoint made from names and shapes; its numbers are zeros.
struct maker {
  char bytes[1 << 16];
  char header[1 << 14];
  size_t length, data;
};

static inline struct maker *maker_begin(void) {
  static struct maker m;
  m.length = (size_t)snprintf(m.header, sizeof m.header, "{\"__metadata__\":{}");
  m.data = 0;
  return &m;
}

// rows, cols and depth: 0 for a dimension that is not there.
static inline void maker_add(struct maker *m, const char *name, unsigned rows, unsigned cols, unsigned depth) {
  unsigned long count = (unsigned long)rows * (cols ? cols : 1) * (depth ? depth : 1);
  char shape[64];
  snprintf(shape, sizeof shape, cols ? depth ? "%u,%u,%u" : "%u,%u" : "%u", rows, cols, depth);
  m->length += (size_t)snprintf(m->header + m->length, sizeof m->header - m->length,
                                ",\"%s\":{\"dtype\":\"F16\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", name, shape,
                                m->data, m->data + 2 * count);
  m->data += 2 * count;
  assert_true(m->length < sizeof m->header);
}

static inline struct checkpoint *maker_end(struct maker *m) {
  uint64_t length = m->length + 1;
  struct checkpoint *c;
  assert_true(8 + length + m->data <= sizeof m->bytes);
  m->header[m->length] = '}';
  memset(m->bytes, 0, sizeof m->bytes);
  memcpy(m->bytes, &length, 8);
  memcpy(m->bytes + 8, m->header, length);
  if (checkpoint_parse("made.safetensors", m->bytes, 8 + length + m->data, &c)) fail_msg("%s", deltaic_last_error());
  return c;
}

// Writes a checkpoint file: this header, `bytes` of data, `zeros` more bytes.
static inline void write_checkpoint(const char *path, const json_t *header, const char *data, size_t bytes,
                                    size_t zeros) {
  char *text = json_dumps(header, JSON_COMPACT);
  assert_non_null(text);
  uint64_t length = strlen(text);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(&length, 8, 1, f), 1);
  assert_int_equal(fwrite(text, 1, length, f), length);
  assert_int_equal(fwrite(data, 1, bytes, f), bytes);
  while (zeros--) fputc(0, f);
  assert_int_equal(fclose(f), 0);
  free(text);
}
#endif
