// Any bytes as a checkpoint file: no crash, and tensors that lie inside the bytes, in order, apart from each other.
#include "fuzz_tools.h"

// The fuzzer's bytes, with the header's length put right when the first byte is odd: else most inputs would stop there.
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
  if (size == 0) return 0;
  uint8_t *data = malloc(size);
  memcpy(data, input, size);
  const uint8_t *end = size > 8 ? memchr(data + 8, '\n', size - 8) : NULL;
  if (size > 8 && (data[0] & 1)) {
    uint64_t length = end ? (uint64_t)(end - data - 8) : size - 8;
    memcpy(data, &length, 8);
  }
  struct checkpoint *c;
  if (checkpoint_parse("fuzz", data, size, &c) == DELTAIC_OK) {
    for (uint64_t i = 0; i < checkpoint_count(c); i++) read_tensor(c, i, data, size, 0, FILE_BF16);
    (void)checkpoint_metadata(c, "format");
    checkpoint_close(c);
  } else {
    check(deltaic_last_error()[0] != 0);
  }
  free(data);
  return 0;
}
