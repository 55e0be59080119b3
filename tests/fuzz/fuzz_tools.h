// fuzz_tools.h: what the fuzzers of files share.
#ifndef FUZZ_TOOLS_H
#define FUZZ_TOOLS_H
#include "checkpoint.h"

#include <stdlib.h>
#include <string.h>

static inline void check(bool ok) {
  if (!ok) abort();
}

// A tensor lies inside the file's bytes and comes after the one before it; numbers of types up to
// `last` can be read.
static inline void read_tensor(struct checkpoint *c, uint64_t i, const uint8_t *data, size_t size, int least_rank,
                               enum file_dtype last) {
  const struct file_tensor *t = checkpoint_at(c, i);
  const char *begin = t->data;
  check(begin >= (const char *)data && t->bytes <= size && begin + t->bytes <= (const char *)data + size);
  check(t->rank >= least_rank && t->rank <= FILE_RANK);
  check(checkpoint_find(c, t->name) == t);
  check(i == 0 || strcmp(checkpoint_at(c, i - 1)->name, t->name) < 0);
  if (t->dtype > last) return;
  uint64_t count = 1;
  for (int d = 0; d < t->rank; d++) count *= t->shape[d];
  float numbers[64];
  file_tensor_f32(t, 0, count < 64 ? count : 64, numbers);
  if (count > 64) file_tensor_f32(t, count - 64, 64, numbers);
}
#endif
