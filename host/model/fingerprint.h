// fingerprint.h: the hash of every tensor's name, shape and data. Tensors that files hold are hashed by threads of their
// own while the weights are uploaded; tensors of a caller's source whenever they are loaded.
#ifndef FINGERPRINT_H
#define FINGERPRINT_H
#include "checkpoint.h"

#include <pthread.h>

struct pool;
struct fingerprint {
  struct checkpoint *checkpoint;
  struct pool *pool;
  pthread_t thread;
  bool runs;
};

// threads: of the upload, of which it takes a quarter besides.
deltaic_status fingerprint_begin(struct fingerprint *f, struct checkpoint *checkpoint, uint32_t threads);
deltaic_status fingerprint_load(struct file_tensor *t); // file_tensor_load(), and the hash unless a file holds the data
void fingerprint_wait(struct fingerprint *f);           // accepts a zeroed one
deltaic_status fingerprint_find(const struct fingerprint *f, uint64_t *out); // after waiting
#endif
