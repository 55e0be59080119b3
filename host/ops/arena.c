// arena: bump allocation of tensors into blocks that every device accepts.
#include "arena.h"

#include "list.h"

#include <stdlib.h>
#include <string.h>

static bool shape_fits(uint64_t rows, uint64_t cols, uint64_t stride, enum dtype dtype, uint64_t *bytes) {
  // Kernels count and index the elements of a tensor with 32 bits.
  uint64_t elements;
  if (rows > UINT32_MAX || cols > stride || stride > UINT32_MAX || !size_mul(rows, stride, &elements) ||
      elements > UINT32_MAX)
    return false;
  *bytes = dtype_bytes(dtype, elements);
  return true;
}

void arena_add(struct arena *arena, struct tensor *out, enum dtype dtype, uint64_t rows, uint64_t cols,
               uint64_t stride) {
  uint64_t bytes;
  if (arena->status != DELTAIC_OK) return;
  if (!shape_fits(rows, cols, stride, dtype, &bytes)) {
    arena->status = fail(DELTAIC_UNSUPPORTED, "a tensor of %llu x %llu is larger than kernels can index",
                         (unsigned long long)rows, (unsigned long long)cols);
    return;
  }
  arena->status =
      list_room(&arena->entries, arena->count, &arena->capacity, sizeof *arena->entries, "the list of tensors");
  if (arena->status != DELTAIC_OK) return;
  *out = (struct tensor){.dtype = dtype, .rows = (uint32_t)rows, .cols = (uint32_t)cols, .stride = (uint32_t)stride};
  bytes = round_up(bytes ? bytes : 1, TENSOR_ALIGN); // an empty tensor must still be a valid range to bind
  arena->entries[arena->count++] = (struct arena_entry){.out = out, .bytes = bytes};
  arena->bytes += bytes;
}

// Gives every entry its block and offset, fills `sizes` with the blocks' sizes, and returns the number of blocks.
static uint64_t arena_place(struct arena *arena, uint64_t limit, uint64_t *sizes) {
  uint64_t block = 0;
  sizes[0] = 0;
  for (uint64_t i = 0; i < arena->count; i++) {
    struct arena_entry *e = &arena->entries[i];
    if (sizes[block] && sizes[block] + e->bytes > limit) sizes[++block] = 0;
    e->block = block;
    e->offset = sizes[block];
    sizes[block] += e->bytes;
  }
  return block + 1;
}

deltaic_status arena_allocate(struct arena *arena, struct backend *backend, enum memory_kind kind, const char *what) {
  if (arena->status != DELTAIC_OK) return arena->status;
  if (!arena->count) return DELTAIC_OK;
  for (uint64_t i = 0; i < arena->count; i++)
    if (arena->entries[i].bytes > backend->max_buffer_bytes)
      return fail(DELTAIC_UNSUPPORTED, "%s: a tensor of %llu bytes exceeds the %llu bytes that %s allows in one buffer",
                  what, (unsigned long long)arena->entries[i].bytes, (unsigned long long)backend->max_buffer_bytes,
                  backend->info.name);
  // Drivers handle blocks of at most 1 GiB best, and larger allocations are the first to fail.
  const uint64_t most = arena->block_bytes ? arena->block_bytes : 1ull << 30;
  const uint64_t limit = backend->max_buffer_bytes < most ? backend->max_buffer_bytes : most;
  uint64_t *sizes = calloc(arena->count, sizeof *sizes);
  if (!sizes) return fail_memory(what, arena->count * sizeof *sizes);
  uint64_t blocks = arena_place(arena, limit, sizes);
  deltaic_status status = DELTAIC_OK;
  arena->blocks = calloc(blocks, sizeof *arena->blocks);
  if (!arena->blocks) status = fail_memory(what, blocks * sizeof *arena->blocks);
  for (; status == DELTAIC_OK && arena->block_count < blocks; arena->block_count++) {
    status = backend->functions->buffer_create(backend, kind, sizes[arena->block_count], what,
                                               &arena->blocks[arena->block_count]);
    if (status != DELTAIC_OK) break;
  }
  free(sizes);
  if (status != DELTAIC_OK) return status;
  for (uint64_t i = 0; i < arena->count; i++) {
    struct arena_entry *e = &arena->entries[i];
    e->out->buffer = &arena->blocks[e->block];
    e->out->offset = e->offset;
  }
  return DELTAIC_OK;
}

deltaic_status arena_zero(struct arena *arena, struct backend *backend) {
  for (uint64_t i = 0; i < arena->block_count; i++) {
    deltaic_status status = backend->functions->buffer_zero(backend, &arena->blocks[i], 0, arena->blocks[i].bytes);
    if (status != DELTAIC_OK) return status;
  }
  return DELTAIC_OK;
}

void arena_free(struct arena *arena, struct backend *backend) {
  for (uint64_t i = 0; i < arena->block_count; i++) backend->functions->buffer_free(backend, &arena->blocks[i]);
  free(arena->blocks);
  free(arena->entries);
  memset(arena, 0, sizeof *arena);
}
