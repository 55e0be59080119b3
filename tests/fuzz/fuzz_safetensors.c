// Any bytes as a checkpoint file: no crash, and tensors that lie inside the bytes, in order, apart from each other.
#include "checkpoint.h"

#include <stdlib.h>
#include <string.h>

static void check(bool ok) {
  if (!ok) abort();
}

static void read_tensor(struct checkpoint *c, uint64_t i, const uint8_t *data, size_t size) {
  const struct file_tensor *t = checkpoint_at(c, i);
  const char *begin = t->data;
  check(begin >= (const char *)data && t->bytes <= size && begin + t->bytes <= (const char *)data + size);
  check(t->rank >= 0 && t->rank <= FILE_RANK);
  check(checkpoint_find(c, t->name) == t);
  check(i == 0 || strcmp(checkpoint_at(c, i - 1)->name, t->name) < 0);
  if (t->dtype > FILE_BF16) return;
  uint64_t count = 1;
  for (int d = 0; d < t->rank; d++) count *= t->shape[d];
  float numbers[64];
  file_tensor_f32(t, 0, count < 64 ? count : 64, numbers);
  if (count > 64) file_tensor_f32(t, count - 64, 64, numbers);
}

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
    for (uint64_t i = 0; i < checkpoint_count(c); i++) read_tensor(c, i, data, size);
    (void)checkpoint_metadata(c, "format");
    checkpoint_close(c);
  } else {
    check(deltaic_last_error()[0] != 0);
  }
  free(data);
  return 0;
}
