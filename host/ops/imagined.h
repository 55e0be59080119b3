// imagined.h: memory of a backend that computes nothing: it says what work would need, before there is memory for it.
// Memory of the device has a size only; what the host shares is there, with zeros, and reading gives zeros.
#ifndef IMAGINED_H
#define IMAGINED_H
#include "backend.h"

deltaic_status imagined_create(struct backend *b, enum memory_kind kind, uint64_t bytes, const char *what,
                               struct buffer *out);
void imagined_free(struct backend *b, struct buffer *buffer);
deltaic_status imagined_write(struct backend *b, struct buffer *to, uint64_t offset, const void *data, uint64_t bytes);
deltaic_status imagined_write_by(struct backend *b, struct buffer *to, uint64_t offset, uint64_t bytes, uint64_t unit,
                                 buffer_fill fill, void *context);
deltaic_status imagined_read(struct backend *b, struct buffer *from, uint64_t offset, void *data, uint64_t bytes);
deltaic_status imagined_read_parts(struct backend *b, const struct buffer_part *parts, size_t n);
deltaic_status imagined_zero(struct backend *b, struct buffer *buffer, uint64_t offset, uint64_t bytes);
deltaic_status imagined_run(struct recorder *c);
deltaic_counters imagined_counters(const struct recorder *c);
deltaic_status imagined_profile(struct recorder *c, bool on);
size_t imagined_times(struct recorder *c, deltaic_kernel_time *times, size_t capacity);
double imagined_compile_seconds(const struct backend *b);
deltaic_status imagined_compile(struct backend *b, void (*lists)(struct recorder *c, void *context), void *context);
void imagined_close(struct backend *b);

// What the tables of all imagined backends have. Each adds its name, what it knows of its device, and how it records
// and plans.
#define IMAGINED_FUNCTIONS                                                                                             \
  .close = imagined_close, .compile_seconds = imagined_compile_seconds, .compile = imagined_compile,                   \
  .buffer_create = imagined_create, .buffer_free = imagined_free, .buffer_write = imagined_write,                      \
  .buffer_write_by = imagined_write_by, .buffer_read = imagined_read, .buffer_read_parts = imagined_read_parts,        \
  .buffer_zero = imagined_zero, .recorder_run = imagined_run, .recorder_counters = imagined_counters,                  \
  .recorder_profile = imagined_profile, .recorder_busy = imagined_profile, .recorder_times = imagined_times
#endif
