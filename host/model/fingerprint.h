// fingerprint.h: a hash of every tensor's name, shape and data. If files hold all tensors, separate threads hash them
// during the upload. A tensor from a caller's source is hashed when it is first loaded.
#ifndef FINGERPRINT_H
#define FINGERPRINT_H
#include "checkpoint.h"

#include <pthread.h>
#include <stdatomic.h>

struct pool;
struct fingerprint {
  struct checkpoint *checkpoint;
  struct pool *pool;
  pthread_t thread;
  bool runs;
  atomic_bool stop;
};

// threads: how many the upload has; a quarter as many hash beside them.
deltaic_status fingerprint_begin(struct fingerprint *f, struct checkpoint *checkpoint, uint32_t threads);
deltaic_status fingerprint_load(struct file_tensor *t); // file_tensor_load(), and the hash unless a file holds the data
// Waits for the threads and hashes what is left.
deltaic_status fingerprint_find(struct fingerprint *f, uint64_t *out);
void fingerprint_end(struct fingerprint *f); // leaves the rest of the tensors; accepts a zeroed one
#endif
