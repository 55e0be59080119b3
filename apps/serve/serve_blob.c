// serve_blob: counts the holders of bytes, and finds the bytes of a state in its blocks.
#include "serve_blob.h"
#include "platform.h"

#include <stdlib.h>
#include <string.h>

struct blob *blob_create(size_t size) {
  struct blob *blob = size <= SIZE_MAX - sizeof *blob ? platform_alloc(sizeof *blob + size, 16) : NULL;
  if (!blob) return NULL;
  *blob = (struct blob){.size = size, .bytes = (uint8_t *)(blob + 1)};
  atomic_init(&blob->holders, 1);
  return blob;
}

struct blob *blob_take(void *bytes, size_t size) {
  struct blob *blob = blob_create(0);
  if (!blob) {
    free(bytes);
    return NULL;
  }
  blob->size = size;
  blob->bytes = bytes;
  return blob;
}

struct blob *blob_hold(struct blob *blob) {
  atomic_fetch_add(&blob->holders, 1);
  return blob;
}

void blob_drop(struct blob *blob) {
  if (!blob || atomic_fetch_sub(&blob->holders, 1) != 1) return;
  if (blob->blocks) {
    blob_drop(blob->blocks->fixed);
    for (size_t i = 0; i < blob->blocks->count; ++i) blob_drop(blob->blocks->items[i]);
    free(blob->blocks);
  } else if (blob->bytes != (uint8_t *)(blob + 1)) {
    free(blob->bytes);
  }
  platform_free(blob);
}

// ---------------------------------------------------------------- layouts

bool state_layout_read(deltaic_session *session, uint64_t fingerprint, struct state_layout *out) {
  struct state_layout l = {.fingerprint = fingerprint};
  if (deltaic_session_state_parts(session, NULL, 0, &l.count)) return false;
  l.parts = calloc(l.count, sizeof *l.parts);
  if (!l.parts || deltaic_session_state_parts(session, l.parts, l.count, &l.count)) {
    free(l.parts);
    return false;
  }
  for (size_t i = 0; i < l.count; i++) l.grows |= l.parts[i].positions == UINT64_MAX;
  *out = l;
  return true;
}

void state_layout_free(struct state_layout *layout) {
  free(layout->parts);
  *layout = (struct state_layout){0};
}

uint64_t state_part_bytes(const deltaic_state_part *part, uint64_t position) {
  if (!part->positions) return part->bytes;
  return part->bytes * (part->positions < position ? part->positions : position);
}

uint64_t state_bytes(const struct state_layout *layout, uint64_t position) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < layout->count; i++) bytes += state_part_bytes(&layout->parts[i], position);
  return bytes;
}

static bool grows(const deltaic_state_part *part) { return part->positions == UINT64_MAX; }

uint64_t state_position_bytes(const struct state_layout *layout) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < layout->count; i++)
    if (grows(&layout->parts[i])) bytes += layout->parts[i].bytes;
  return bytes;
}

bool state_fits(const struct state_layout *layout, uint64_t position, uint64_t size, bool *logits) {
  uint64_t most = 0, optional = 0;
  if (position > INT32_MAX) return false; // no session reads more
  for (size_t i = 0; i < layout->count; i++) {
    const uint64_t each = layout->parts[i].bytes;
    if (each && position > (UINT64_MAX >> 8) / each) return false;
    most += state_part_bytes(&layout->parts[i], position);
    if (layout->parts[i].optional) optional += each;
  }
  *logits = size == most;
  return *logits || size == most - optional;
}

// ---------------------------------------------------------------- states

static uint64_t positions_of(const struct blocks *b, size_t block) {
  const uint64_t rest = b->position - block * BLOCK_POSITIONS;
  return rest < BLOCK_POSITIONS ? rest : BLOCK_POSITIONS;
}

struct blob *state_create(const struct state_layout *layout, uint64_t position, size_t size,
                          const struct blob *before) {
  if (!layout->grows) return blob_create(size);
  const uint64_t row = state_position_bytes(layout);
  const size_t count = (position + BLOCK_POSITIONS - 1) / BLOCK_POSITIONS;
  struct blob *blob = blob_create(0);
  struct blocks *b = calloc(1, sizeof *b + count * sizeof *b->items);
  if (!blob || !b) {
    blob_drop(blob);
    free(b);
    return NULL;
  }
  *b = (struct blocks){.layout = layout, .position = position, .count = count};
  blob->size = size;
  blob->bytes = NULL;
  blob->blocks = b;
  if (before && before->blocks) {
    const uint64_t same = before->blocks->position < position ? before->blocks->position : position;
    b->shared = same / BLOCK_POSITIONS;
  }
  b->fixed = blob_create(size - position * row);
  bool good = b->fixed;
  for (size_t i = 0; i < count && good; ++i) {
    b->items[i] = i < b->shared ? blob_hold(before->blocks->items[i]) : blob_create(positions_of(b, i) * row);
    good = b->items[i];
  }
  if (good) return blob;
  blob_drop(blob);
  return NULL;
}

// The bytes of part `i`, a part that grows, from its byte `from` on. row: bytes of one position in the growing parts
// before it.
static struct span span_of_cache(const struct blocks *b, size_t i, size_t from, size_t row) {
  const size_t each = b->layout->parts[i].bytes, block = from / (BLOCK_POSITIONS * each);
  const size_t positions = positions_of(b, block), at = from - block * BLOCK_POSITIONS * each;
  return (struct span){b->items[block]->bytes + row * positions + at, positions * each - at, block < b->shared};
}

struct span blob_span(const struct blob *blob, size_t offset) {
  if (!blob->blocks) return (struct span){blob->bytes + offset, blob->size - offset, false};
  const struct blocks *b = blob->blocks;
  const struct state_layout *l = b->layout;
  // Bytes before part i: at: in the state; fixed: of parts that do not grow; row: of one position, of parts that grow.
  size_t at = 0, fixed = 0, row = 0, i = 0;
  for (; i < l->count; ++i) {
    const size_t bytes = state_part_bytes(&l->parts[i], b->position);
    if (offset < at + bytes) break;
    at += bytes;
    *(grows(&l->parts[i]) ? &row : &fixed) += grows(&l->parts[i]) ? l->parts[i].bytes : bytes;
  }
  if (i < l->count && grows(&l->parts[i])) return span_of_cache(b, i, offset - at, row);
  size_t end = at; // of the parts that are contiguous in `fixed`
  for (; i < l->count && !grows(&l->parts[i]); ++i) end += state_part_bytes(&l->parts[i], b->position);
  if (end > blob->size) end = blob->size; // without logits
  return (struct span){b->fixed->bytes + fixed + (offset - at), end - offset, false};
}

void blob_copy(const struct blob *blob, size_t offset, size_t bytes, void *to) {
  for (uint8_t *out = to; bytes;) {
    const struct span span = blob_span(blob, offset);
    const size_t n = span.size < bytes ? span.size : bytes;
    memcpy(out, span.bytes, n);
    out += n;
    offset += n;
    bytes -= n;
  }
}

void blob_fill(struct blob *blob, size_t offset, size_t bytes, const void *from) {
  for (const uint8_t *in = from; bytes;) {
    const struct span span = blob_span(blob, offset);
    const size_t n = span.size < bytes ? span.size : bytes;
    memcpy(span.bytes, in, n);
    in += n;
    offset += n;
    bytes -= n;
  }
}
