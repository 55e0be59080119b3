// fuzz_tokenizer: arbitrary bytes as tokenizer.json; what opens must encode and decode without a fault, and decode the
// same token by token as at once. Seeds: tests/vectors/tokenizer.
#include "tokenizer.h"

static const char text[] = "<s>It's  12345 h\u00e9llo \u4f60\u597d \U0001F600 a\u0301\n\n<0x41>\u2581ab aab</s> ";

static void decode(const deltaic_tokenizer *t, const int32_t *ids, size_t n, bool skip) {
  deltaic_decoder *decoder;
  struct text streamed = {0};
  size_t bytes, chunk_bytes;
  const char *chunk;
  if (n) deltaic_tokenizer_token_bytes(t, ids[0], NULL, 0, NULL);
  if (deltaic_tokenizer_decode(t, ids, n, skip, NULL, 0, &bytes)) return;
  char *whole = malloc(bytes + 1);
  if (deltaic_tokenizer_decode(t, ids, n, skip, whole, bytes, &bytes)) abort();
  if (deltaic_decoder_create(t, skip, &decoder)) abort();
  for (size_t i = 0; i <= n; i++) {
    if (i < n ? deltaic_decoder_push(decoder, ids[i], &chunk, &chunk_bytes)
              : deltaic_decoder_finish(decoder, &chunk, &chunk_bytes))
      abort();
    text_append(&streamed, chunk, chunk_bytes);
  }
  if (streamed.length != bytes || (bytes && memcmp(streamed.bytes, whole, bytes) != 0)) abort();
  text_free(&streamed);
  deltaic_decoder_free(decoder);
  free(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  deltaic_tokenizer *t;
  if (tokenizer_parse((const char *)data, size, "fuzz", &t)) return 0;
  int32_t ids[4096], low[64];
  size_t n;
  for (int i = 0; i < 64; i++) low[i] = i;
  decode(t, low, 64, false);
  if (!deltaic_tokenizer_encode(t, text, sizeof text - 1, true, ids, 4096, &n)) {
    decode(t, ids, n, false);
    decode(t, ids, n, true);
  }
  deltaic_tokenizer_close(t);
  return 0;
}
