// fingerprint: see fingerprint.h.
#include "fingerprint.h"
#include "hash.h"
#include "pool.h"

#include <stdlib.h>

static void hash_tensor(struct file_tensor *t) {
  uint64_t h = hash_bytes(HASH_BEGIN, t->name, strlen(t->name));
  h = hash_bytes(h, t->shape, (uint64_t)t->rank * sizeof t->shape[0]);
  t->hash = hash_bytes(h, t->data, t->bytes);
  t->hashed = true;
}

static void hash_held(void *fingerprint, uint64_t index, uint32_t worker) {
  (void)worker;
  struct fingerprint *f = fingerprint;
  struct file_tensor *t = checkpoint_at(f->checkpoint, index);
  if (t->data && !t->hashed && !f->stop) hash_tensor(t);
}

static void *hash_all(void *fingerprint) {
  struct fingerprint *f = fingerprint;
  pool_run(f->pool, checkpoint_count(f->checkpoint), hash_held, f);
  return NULL;
}

// Else the upload loads and unloads data, which the threads would read.
static bool holds_all(struct checkpoint *c) {
  for (uint64_t i = 0; i < checkpoint_count(c); i++)
    if (!checkpoint_at(c, i)->data) return false;
  return true;
}

deltaic_status fingerprint_begin(struct fingerprint *f, struct checkpoint *checkpoint, uint32_t threads) {
  enum { SHARE = 4, STACK_BYTES = 1 << 20 };
  f->checkpoint = checkpoint;
  const deltaic_status status = pool_create((threads + SHARE - 1) / SHARE, &f->pool);
  f->runs = !status && holds_all(checkpoint) && !platform_thread(&f->thread, STACK_BYTES, hash_all, f);
  return status;
}

static void join(struct fingerprint *f) {
  if (f->runs) pthread_join(f->thread, NULL);
  f->runs = false;
}

deltaic_status fingerprint_load(struct file_tensor *t) {
  const bool held = t->data;
  const deltaic_status status = file_tensor_load(t);
  if (!status && !held && !t->hashed) hash_tensor(t);
  return status;
}

deltaic_status fingerprint_find(struct fingerprint *f, uint64_t *out) {
  const uint64_t count = checkpoint_count(f->checkpoint);
  uint64_t *hashes = calloc(count, sizeof *hashes);
  deltaic_status status = hashes ? DELTAIC_OK : fail_memory("the tensors' checksums", count * sizeof *hashes);
  join(f);
  if (!status) hash_all(f);
  for (uint64_t i = 0; i < count && !status; i++) {
    struct file_tensor *t = checkpoint_at(f->checkpoint, i);
    if (!t->hashed) { // no weight of the model
      status = fingerprint_load(t);
      file_tensor_unload(t);
    }
    hashes[i] = t->hash;
  }
  if (!status) *out = hash_bytes(HASH_BEGIN, hashes, count * sizeof *hashes);
  free(hashes);
  return status;
}

void fingerprint_end(struct fingerprint *f) {
  f->stop = true;
  join(f);
  pool_free(f->pool);
  f->pool = NULL;
}
