// serve_blob.h: bytes that several threads share, and the states of sequences as such bytes.
#ifndef SERVE_BLOB_H
#define SERVE_BLOB_H
#include "deltaic.h"

#include <stdatomic.h>

// Bytes that several threads share. The last holder to drop them frees them.
struct blob {
  atomic_uint holders;
  size_t size;
  uint8_t *bytes;        // NULL: they are in blocks
  struct blocks *blocks; // of a state from state_create(), or NULL
  uint32_t kept;         // of a block: how many states in the store's memory have it; under the store's lock
};
struct blob *blob_create(size_t size);            // with one holder; NULL: no memory
struct blob *blob_take(void *bytes, size_t size); // takes over these bytes, and frees them even if it fails
struct blob *blob_hold(struct blob *blob);
void blob_drop(struct blob *blob); // NULL: nothing

// The bytes from `offset` on that are contiguous in memory; there is at least one.
struct span {
  uint8_t *bytes;
  size_t size;
  bool shared; // they are in a block of an earlier state
};
struct span blob_span(const struct blob *blob, size_t offset);
void blob_copy(const struct blob *blob, size_t offset, size_t bytes, void *to);
void blob_fill(struct blob *blob, size_t offset, size_t bytes, const void *from);

// How the states of a model are laid out.
struct state_layout {
  deltaic_state_part *parts;
  size_t count;
  uint64_t fingerprint; // of the model
  bool grows;           // some part is a cache of all positions, so it grows with the state's position
};
// Returns false, with a deltaic_last_error(), if the session cannot tell.
bool state_layout_read(deltaic_session *session, uint64_t fingerprint, struct state_layout *out);
void state_layout_free(struct state_layout *layout);
uint64_t state_part_bytes(const deltaic_state_part *part, uint64_t position);
// state_bytes: of a state behind `position` tokens. state_position_bytes: of one position in all parts that grow.
uint64_t state_bytes(const struct state_layout *layout, uint64_t position);
uint64_t state_position_bytes(const struct state_layout *layout);

// Whether a state behind `position` tokens can have this size. *logits: whether it then has the last logits.
bool state_fits(const struct state_layout *layout, uint64_t position, uint64_t size, bool *logits);

// The parts that grow are stored in blocks of this many positions, which later states and forks share. The last block
// may have fewer positions.
enum { BLOCK_POSITIONS = 256 };
struct blocks {
  const struct state_layout *layout;
  uint64_t position;
  struct blob *fixed;   // the parts that do not grow
  size_t shared, count; // the first `shared` blocks are shared with the earlier state
  struct blob *items[]; // in each, the positions of the first cache, then those of the next
};
// Allocates a state of `size` bytes behind `position` tokens, which fits the layout. before: NULL, or an earlier state
// that this one continues; its full blocks are shared. The layout must outlive the state. NULL: no memory.
struct blob *state_create(const struct state_layout *layout, uint64_t position, size_t size, const struct blob *before);
#endif
