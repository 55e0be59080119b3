// state_bytes: the bytes of a saved state, and where they are on the device.
//
// The format is little endian, like every known device:
//   a header, then the state tensors of each layer in order, then the bits of seen tokens, then the last logits if
//   there are any. A cache is written as its positions from the oldest that can still be read to the newest, so that it
//   also fits a session with another context or batch. The checksum is hash_bytes() over the header, in which it
//   counts as 0, and over the payload.
#include "state_bytes.h"
#include "hash.h"

#include <stdlib.h>
#include <string.h>

static const char state_magic[8] = "DELTAIC\x1a";

void state_header_mark(struct state_header *h) { memcpy(h->magic, state_magic, sizeof h->magic); }

uint64_t state_checksum(struct state_header h, const char *payload) {
  h.checksum = 0;
  return hash_bytes(hash_bytes(HASH_BEGIN, &h, sizeof h), payload, h.bytes);
}

// The number of a cache's positions that later tokens can still read.
static uint64_t live_positions(const struct state_entry *e, uint64_t position) {
  return e->window && position > e->window ? e->window : position;
}

static uint64_t entry_bytes(const struct state_entry *e, uint64_t position) {
  if (!e->position_cols) return e->tensor->cols * sizeof(float);
  return live_positions(e, position) * e->position_cols * sizeof(float);
}

struct tensor state_row(const struct tensor *t, uint32_t slot) {
  return tensor_rows(*t, slot, 1);
}

uint64_t state_payload_bytes(const struct deltaic_session *s, uint64_t position, bool has_logits) {
  const struct tensor seen = state_row(&s->seen, 0), last = state_row(&s->last, 0);
  uint64_t bytes = tensor_bytes(&seen) + (has_logits ? tensor_bytes(&last) : 0);
  for (uint32_t i = 0; i < s->model->spec.L; i++)
    for (int e = 0; e < s->lists[i].count; e++) bytes += entry_bytes(&s->lists[i].entries[e], position);
  return bytes;
}

// Where the payload's bytes first ... end - 1 are on the device.
struct layout {
  struct buffer_part *parts;
  size_t n, room;
  uint64_t at; // the payload's bytes before the next tensor
  uint64_t first, end;
  char *data; // of byte `first`
};

static void add_range(struct layout *l, const struct tensor *t, uint64_t offset, uint64_t bytes) {
  const uint64_t from = l->at > l->first ? l->at : l->first, to = l->at + bytes < l->end ? l->at + bytes : l->end;
  if (from < to) {
    if (l->n < l->room)
      l->parts[l->n] =
          (struct buffer_part){t->buffer, t->offset + offset + (from - l->at), to - from, l->data + (from - l->first)};
    l->n++;
  }
  l->at += bytes;
}

// The live positions of a ring buffer are at most two contiguous ranges.
static void add_cache(struct layout *l, const struct state_entry *e, uint32_t slot, uint64_t position) {
  const struct tensor cache = state_row(e->tensor, slot);
  const uint64_t live = live_positions(e, position), size = e->position_cols * sizeof(float);
  const uint64_t capacity = e->tensor->cols / e->position_cols;
  for (uint64_t p = position - live; p < position;) {
    const uint64_t at = p % capacity, run = position - p < capacity - at ? position - p : capacity - at;
    add_range(l, &cache, at * size, run * size);
    p += run;
  }
}

// If l.room is 0, the ranges are counted, but not listed.
static struct layout layout_of(const struct deltaic_session *s, uint32_t slot, uint64_t position, bool has_logits,
                               struct layout l) {
  const struct tensor seen = state_row(&s->seen, slot), last = state_row(&s->last, slot);
  for (uint32_t i = 0; i < s->model->spec.L; i++)
    for (int k = 0; k < s->lists[i].count; k++) {
      const struct state_entry *e = &s->lists[i].entries[k];
      const struct tensor row = state_row(e->tensor, slot);
      if (e->position_cols)
        add_cache(&l, e, slot, position);
      else
        add_range(&l, &row, 0, tensor_bytes(&row));
    }
  add_range(&l, &seen, 0, tensor_bytes(&seen));
  if (has_logits) add_range(&l, &last, 0, tensor_bytes(&last));
  return l;
}

deltaic_status state_move(struct deltaic_session *s, uint32_t slot, const struct state_range *r, bool in) {
  struct backend *b = s->model->backend;
  const struct layout range = {.first = r->offset, .end = r->offset + r->bytes, .data = r->data};
  struct layout l = layout_of(s, slot, r->position, r->has_logits, range);
  if (!l.n) return DELTAIC_OK;
  l.room = l.n;
  l.n = l.at = 0;
  l.parts = malloc(l.room * sizeof *l.parts);
  if (!l.parts) return fail_memory("the parts of a state", l.room * sizeof *l.parts);
  l = layout_of(s, slot, r->position, r->has_logits, l);
  deltaic_status status = in ? DELTAIC_OK : b->functions->buffer_read_parts(b, l.parts, l.n);
  for (size_t i = 0; i < l.n && in && !status; i++)
    status = b->functions->buffer_write(b, l.parts[i].buffer, l.parts[i].offset, l.parts[i].data, l.parts[i].bytes);
  free(l.parts);
  return status;
}

deltaic_status state_read_header(const void *state, size_t bytes, struct state_header *h) {
  if (bytes < sizeof *h) return fail(DELTAIC_BAD_FILE, "saved state: %zu bytes are too few for a header", bytes);
  memcpy(h, state, sizeof *h);
  if (memcmp(h->magic, state_magic, sizeof h->magic)) return fail(DELTAIC_BAD_FILE, "saved state: not a saved state");
  return DELTAIC_OK;
}

deltaic_status deltaic_state_position(const void *state, size_t bytes, uint64_t *position) {
  struct state_header h;
  if (!state || !position)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_state_position: %s is NULL", !state ? "state" : "position");
  deltaic_status status = state_read_header(state, bytes, &h);
  if (status == DELTAIC_OK) *position = h.position;
  return status;
}

deltaic_status deltaic_state_seal(void *state, size_t bytes) {
  struct state_header h;
  if (!state) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_state_seal: state is NULL");
  deltaic_status status = state_read_header(state, bytes, &h);
  if (status != DELTAIC_OK) return status;
  h.bytes = bytes - sizeof h;
  h.checksum = state_checksum(h, (char *)state + sizeof h);
  memcpy(state, &h, sizeof h);
  return DELTAIC_OK;
}

static void add_part(deltaic_state_part *parts, size_t capacity, size_t *n, deltaic_state_part part) {
  if (*n < capacity) parts[*n] = part;
  ++*n;
}

deltaic_status deltaic_session_state_parts(deltaic_session *s, deltaic_state_part *parts, size_t capacity,
                                           size_t *count) {
  if (!s || !count || (capacity && !parts))
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_state_parts: %s is NULL",
                !s       ? "session"
                : !count ? "count"
                         : "parts");
  const struct tensor seen = state_row(&s->seen, 0), last = state_row(&s->last, 0);
  size_t n = 0;
  add_part(parts, capacity, &n, (deltaic_state_part){.bytes = sizeof(struct state_header)});
  for (uint32_t i = 0; i < s->model->spec.L; i++)
    for (int k = 0; k < s->lists[i].count; k++) {
      const struct state_entry *e = &s->lists[i].entries[k];
      const uint64_t columns = e->position_cols ? e->position_cols : e->tensor->cols;
      const uint64_t positions = e->window ? e->window : UINT64_MAX;
      add_part(parts, capacity, &n,
               (deltaic_state_part){
                   .bytes = columns * sizeof(float), .positions = e->position_cols ? positions : 0, .numbers = true});
    }
  add_part(parts, capacity, &n, (deltaic_state_part){.bytes = tensor_bytes(&seen)});
  add_part(parts, capacity, &n, (deltaic_state_part){.bytes = tensor_bytes(&last), .numbers = true, .optional = true});
  *count = n;
  if (parts && capacity < n)
    return fail(DELTAIC_BUFFER_TOO_SMALL, "a saved state has %zu parts, but there is room for %zu", n, capacity);
  return DELTAIC_OK;
}
