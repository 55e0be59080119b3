// imagined.h: memory of a backend that computes nothing: it says what work would need, before there is memory for it.
// Memory of the device has a size only; what the host shares is there, with zeros.
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
deltaic_status imagined_zero(struct backend *b, struct buffer *buffer, uint64_t offset, uint64_t bytes);
deltaic_status imagined_run(struct recorder *c);
void imagined_close(struct backend *b);
#endif
