// state_bytes.h: the bytes of a saved state: a header, and the payload behind it.
#ifndef STATE_BYTES_H
#define STATE_BYTES_H
#include "session.h"

enum { STATE_VERSION = 2 }; // 1: the fingerprint was one hash over all tensors

struct state_header {
  char magic[8];
  uint32_t version, has_logits;
  uint64_t fingerprint; // of the model's tensors
  uint64_t position;
  uint64_t bytes;    // bytes that follow the header
  uint64_t checksum; // of the header, with 0 here, and the payload
};

void state_header_mark(struct state_header *h); // sets `magic`
deltaic_status state_read_header(const void *state, size_t bytes, struct state_header *h);
uint64_t state_checksum(struct state_header h, const char *payload);
uint64_t state_payload_bytes(const struct deltaic_session *s, uint64_t position, bool has_logits);
struct tensor state_row(const struct tensor *t, uint32_t slot); // the row of a tensor that belongs to the slot

// A range of the payload of a state behind `position` tokens.
struct state_range {
  uint64_t position;
  bool has_logits;
  uint64_t offset, bytes;
  char *data; // (bytes)
};
// Copies the range from the slot, or into it.
deltaic_status state_move(struct deltaic_session *s, uint32_t slot, const struct state_range *range, bool in);
#endif
