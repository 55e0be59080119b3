// Any bytes as a GGUF file: no crash, and tensors that lie inside the bytes, in order, apart from each other. The keys
// are read as a model and as a tokenizer too.
#include "arch.h"
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

static void check(bool ok) {
  if (!ok) abort();
}

static void read_tensor(struct checkpoint *c, uint64_t i, const uint8_t *data, size_t size) {
  const struct file_tensor *t = checkpoint_at(c, i);
  const char *begin = t->data;
  check(begin >= (const char *)data && t->bytes <= size && begin + t->bytes <= (const char *)data + size);
  check(t->rank > 0 && t->rank <= FILE_RANK);
  check(checkpoint_find(c, t->name) == t);
  check(i == 0 || strcmp(checkpoint_at(c, i - 1)->name, t->name) < 0);
  if (t->dtype > FILE_BLOCKS_LAST) return;
  uint64_t count = 1;
  for (int d = 0; d < t->rank; d++) count *= t->shape[d];
  float numbers[64];
  file_tensor_f32(t, 0, count < 64 ? count : 64, numbers);
  if (count > 64) file_tensor_f32(t, count - 64, 64, numbers);
}

static void read_keys(struct checkpoint *c) {
  struct model_spec spec;
  deltaic_tokenizer *tokenizer = NULL;
  check(json_is_object(checkpoint_keys(c)));
  if (model_spec_read("", c, &spec))
    check(deltaic_last_error()[0] != 0);
  else
    model_spec_free(&spec);
  if (tokenizer_of_gguf(checkpoint_keys(c), "fuzz", &tokenizer) == DELTAIC_OK)
    deltaic_tokenizer_close(tokenizer);
  else
    check(deltaic_last_error()[0] != 0);
}

// The fuzzer's bytes after the magic number and the version: else most inputs would stop there.
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
  uint8_t *data = malloc(size + 8);
  memcpy(data, "GGUF\3\0\0\0", 8);
  if (size) memcpy(data + 8, input, size);
  struct checkpoint *c;
  if (checkpoint_parse("fuzz", data, size + 8, &c) == DELTAIC_OK) {
    for (uint64_t i = 0; i < checkpoint_count(c); i++) read_tensor(c, i, data, size + 8);
    read_keys(c);
    checkpoint_close(c);
  } else {
    check(deltaic_last_error()[0] != 0);
  }
  free(data);
  return 0;
}
