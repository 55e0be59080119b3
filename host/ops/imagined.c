// imagined: see imagined.h.
#include "imagined.h"

#include <stdlib.h>
#include <string.h>

deltaic_status imagined_create(struct backend *b, enum memory_kind kind, uint64_t bytes, const char *what,
                               struct buffer *out) {
  *out = (struct buffer){.bytes = bytes, .kind = kind};
  if (bytes > b->max_buffer_bytes)
    return fail(DELTAIC_OUT_OF_MEMORY, "%llu bytes for %s: a buffer on %s holds at most %llu",
                (unsigned long long)bytes, what, b->info.name, (unsigned long long)b->max_buffer_bytes);
  if (kind == MEMORY_DEVICE) return DELTAIC_OK;
  out->mapped = bytes > SIZE_MAX - 1 ? NULL : calloc(1, (size_t)bytes + 1);
  return out->mapped ? DELTAIC_OK : fail_memory(what, bytes);
}

void imagined_free(struct backend *b, struct buffer *buffer) {
  (void)b;
  free(buffer->mapped);
  *buffer = (struct buffer){0};
}

deltaic_status imagined_write(struct backend *b, struct buffer *to, uint64_t offset, const void *data, uint64_t bytes) {
  (void)b, (void)to, (void)offset, (void)data, (void)bytes;
  return DELTAIC_OK;
}

deltaic_status imagined_write_by(struct backend *b, struct buffer *to, uint64_t offset, uint64_t bytes, uint64_t unit,
                                 buffer_fill fill, void *context) {
  (void)b, (void)to, (void)offset, (void)bytes, (void)unit, (void)fill, (void)context;
  return DELTAIC_OK;
}

deltaic_status imagined_read(struct backend *b, struct buffer *from, uint64_t offset, void *data, uint64_t bytes) {
  (void)b, (void)from, (void)offset;
  memset(data, 0, (size_t)bytes);
  return DELTAIC_OK;
}

deltaic_status imagined_read_parts(struct backend *b, const struct buffer_part *parts, size_t n) {
  for (size_t i = 0; i < n; i++) imagined_read(b, parts[i].buffer, parts[i].offset, parts[i].data, parts[i].bytes);
  return DELTAIC_OK;
}

deltaic_status imagined_zero(struct backend *b, struct buffer *buffer, uint64_t offset, uint64_t bytes) {
  (void)b, (void)buffer, (void)offset, (void)bytes;
  return DELTAIC_OK;
}

deltaic_status imagined_run(struct recorder *c) {
  (void)c;
  return DELTAIC_OK;
}

deltaic_counters imagined_counters(const struct recorder *c) {
  (void)c;
  return (deltaic_counters){0};
}

deltaic_status imagined_profile(struct recorder *c, bool on) {
  (void)c, (void)on;
  return DELTAIC_OK;
}

size_t imagined_times(struct recorder *c, deltaic_kernel_time *times, size_t capacity) {
  (void)c, (void)times, (void)capacity;
  return 0;
}

double imagined_compile_seconds(const struct backend *b) {
  (void)b;
  return 0;
}

deltaic_status imagined_compile(struct backend *b, void (*lists)(struct recorder *c, void *context), void *context) {
  (void)b, (void)lists, (void)context;
  return DELTAIC_OK;
}

void imagined_close(struct backend *b) { free(b); }
