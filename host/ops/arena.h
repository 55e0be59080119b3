// arena.h: places many tensors in few buffers. Declare the tensors, ask for the total size, then allocate all at once.
#ifndef ARENA_H
#define ARENA_H
#include "backend.h"

struct arena_entry {
  struct tensor *out; // receives buffer and offset
  uint64_t block, offset, bytes;
};

struct arena {
  struct arena_entry *entries;
  size_t count, capacity;
  struct buffer *blocks;
  uint64_t block_count;
  uint64_t block_bytes;  // most in one buffer; 0: 1 GiB
  uint64_t bytes;        // of everything declared, padding included
  deltaic_status status; // first error while declaring; arena_allocate() reports it
};

// Declares `out` (which must stay where it is until arena_allocate) and fills its dtype, rows, cols and stride.
void arena_add(struct arena *arena, struct tensor *out, enum dtype dtype, uint64_t rows, uint64_t cols, uint64_t stride)
    INSIDE(arena_add);
deltaic_status arena_allocate(struct arena *arena, struct backend *backend, enum memory_kind kind, const char *what)
    INSIDE(arena_allocate);
deltaic_status arena_zero(struct arena *arena, struct backend *backend) INSIDE(arena_zero);
void arena_free(struct arena *arena, struct backend *backend) INSIDE(arena_free); // accepts a zeroed arena
#endif
