// Any bytes as a GGUF file: no crash, and tensors that lie inside the bytes, in order, apart from each other. The keys
// are read as a model and as a tokenizer too.
#include "arch.h"
#include "fuzz_tools.h"
#include "gguf.h"
#include "tokenizer.h"

static void read_keys(struct checkpoint *c, const void *data, size_t size) {
  struct model_spec spec;
  deltaic_tokenizer *tokenizer = NULL;
  check(json_is_object(checkpoint_keys(c)));
  if (model_spec_read("", c, &spec))
    check(deltaic_last_error()[0] != 0);
  else
    model_spec_free(&spec);
  struct gguf all;
  deltaic_status status = gguf_read_keys("fuzz", (struct file_view){data, size}, &all);
  if (!status) status = tokenizer_of_gguf(&all, (struct file_view){data, size}, "fuzz", &tokenizer);
  if (status)
    check(deltaic_last_error()[0] != 0);
  else
    deltaic_tokenizer_close(tokenizer);
  gguf_free(&all);
}

// The fuzzer's bytes after the magic number and the version: else most inputs would stop there.
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
  uint8_t *data = malloc(size + 8);
  memcpy(data, "GGUF\3\0\0\0", 8);
  if (size) memcpy(data + 8, input, size);
  struct checkpoint *c;
  if (checkpoint_parse("fuzz", data, size + 8, &c) == DELTAIC_OK) {
    for (uint64_t i = 0; i < checkpoint_count(c); i++) read_tensor(c, i, data, size + 8, 1, FILE_BLOCKS_LAST);
    read_keys(c, data, size + 8);
    checkpoint_close(c);
  } else {
    check(deltaic_last_error()[0] != 0);
  }
  free(data);
  return 0;
}
