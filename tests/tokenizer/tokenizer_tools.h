// tokenizer_tools.h: what the tests of tokenizers share: opening one, and its text at once and in a stream.
#ifndef TOKENIZER_TOOLS_H
#define TOKENIZER_TOOLS_H
#include "tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define VECTORS TESTS_DIR "/vectors/tokenizer"

static inline deltaic_tokenizer *open_file(const char *path) {
  deltaic_tokenizer *t = NULL;
  deltaic_status status = deltaic_tokenizer_open(path, &t);
  if (status) print_error("%s\n", deltaic_last_error());
  assert_int_equal(status, DELTAIC_OK);
  return t;
}

static inline deltaic_tokenizer *parse(const char *json) {
  deltaic_tokenizer *t = NULL;
  deltaic_status status = tokenizer_parse(json, strlen(json), "tokenizer.json", &t);
  if (status) print_error("%s\n", deltaic_last_error());
  assert_int_equal(status, DELTAIC_OK);
  return t;
}

static inline bool is_valid_utf8(const char *text, size_t n) {
  for (size_t at = 0; at < n;) {
    int length = utf8_check(text + at, n - at);
    if (length <= 0) return false;
    at += (size_t)length;
  }
  return true;
}

// Decodes at once and token by token: both must agree, and no chunk may split a character. Returns the text, to be
// freed, ended by NUL.
static inline char *decode_both(const deltaic_tokenizer *t, const int32_t *ids, size_t n, bool skip, size_t *length) {
  size_t bytes, chunk_bytes;
  const char *chunk;
  assert_int_equal(deltaic_tokenizer_decode(t, ids, n, skip, NULL, 0, &bytes), DELTAIC_OK);
  char *whole = malloc(bytes + 1);
  assert_int_equal(deltaic_tokenizer_decode(t, ids, n, skip, whole, bytes, &bytes), DELTAIC_OK);
  whole[bytes] = 0;
  deltaic_decoder *d;
  struct text streamed = {0};
  assert_int_equal(deltaic_decoder_create(t, skip, &d), DELTAIC_OK);
  for (size_t i = 0; i <= n; i++) {
    deltaic_status status =
        i < n ? deltaic_decoder_push(d, ids[i], &chunk, &chunk_bytes) : deltaic_decoder_finish(d, &chunk, &chunk_bytes);
    assert_int_equal(status, DELTAIC_OK);
    assert_true(is_valid_utf8(chunk, chunk_bytes));
    text_append(&streamed, chunk, chunk_bytes);
  }
  assert_int_equal(streamed.length, bytes);
  if (bytes) assert_memory_equal(streamed.bytes, whole, bytes);
  text_free(&streamed);
  deltaic_decoder_free(d);
  if (length) *length = bytes;
  return whole;
}
#endif
