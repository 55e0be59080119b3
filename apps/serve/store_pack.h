// store_pack.h: a saved state as the values that a store keeps. What a turn replaces is one value; what caches of all
// positions grew by is a block of its own, which later states and forks share. Numbers may be rounded to 16 or 8 bits.
#ifndef STORE_PACK_H
#define STORE_PACK_H
#include "serve_blob.h"

enum { PACK_ID = 96, PACK_BLOCKS = 64 };

// Positions first ... end - 1 of the caches, as the block `id`.
struct pack_block {
  char id[PACK_ID + 1];
  uint64_t first, end;
  uint64_t checksum; // of these numbers before they were rounded
};
struct pack_blocks {
  struct pack_block items[PACK_BLOCKS];
  size_t count;
};

struct pack_bytes {
  char *data;
  size_t bytes;
};

// What a state's value is made of.
struct pack_state {
  struct blob *state; // which is only read
  uint64_t position;
  uint32_t bits; // 32: exact; 16, 8. Exact too where a number is not finite
};
// Both return the value, which the caller frees, or data NULL: no memory, or the state is none of the layout's.
// pack_fixed: what does not grow, and which blocks hold the rest. pack_grown: positions first ... end - 1 of the rest.
struct pack_bytes pack_fixed(const struct state_layout *layout, const struct pack_state *s,
                             const struct pack_blocks *blocks);
struct pack_bytes pack_grown(const struct state_layout *layout, const struct pack_state *s, uint64_t first,
                             uint64_t end);
// The checksum that a block of these positions of the state has; a state with the same may share the block.
uint64_t pack_checksum(const struct state_layout *layout, const struct pack_state *s, uint64_t first, uint64_t end);

// Reads the beginning of a value of pack_fixed(); PACK_HEAD bytes are enough. false: it is none of this model's.
enum { PACK_HEAD = 64 + PACK_BLOCKS * 120 };
bool pack_read_blocks(const struct state_layout *layout, const void *value, size_t bytes, struct pack_blocks *out,
                      uint64_t *position);
// Put a state together again, without its checksum. pack_open() checks the value and makes the state; then pack_add()
// adds each block. They return NULL or false if the bytes are damaged or belong to another model.
struct blob *pack_open(const struct state_layout *layout, const void *value, size_t bytes);
bool pack_add(struct blob *state, const struct pack_block *block, const struct pack_bytes *value);
// A checksum of any bytes; for damage, not against attacks.
uint64_t pack_sum(const void *data, size_t bytes);
#endif
