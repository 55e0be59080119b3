// store_pack: cuts a saved state into values and puts it together again.
//
// Every value begins with a header; the header of a state is followed by the list of its blocks. Numbers of 16 and 8
// bits are integers with a scale for every 64: the largest number of the 64 is the largest integer. Values are little
// endian, as states are.
#include "store_pack.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 64 };

struct header {
  char magic[8];
  uint32_t bits, blocks;
  uint64_t fingerprint, first, end, state_bytes; // first: of a block; end: of a block, or the state's position
  uint64_t payload_bytes, checksum;              // of all, with a checksum of 0
};
struct listed_block {
  char id[PACK_ID];
  uint64_t first, end, checksum;
};
static_assert(sizeof(struct header) + PACK_BLOCKS * sizeof(struct listed_block) <= PACK_HEAD, "PACK_HEAD is too small");
static const char state_magic[8] = "DLTSTAT1", block_magic[8] = "DLTBLOK1";

// FNV-1a over words; for damage, not against attacks. `bytes` is a multiple of 8.
static uint64_t add_words(uint64_t h, const char *data, size_t bytes) {
  for (uint64_t word; bytes; data += 8, bytes -= 8) {
    memcpy(&word, data, 8);
    h = (h ^ word) * 0x100000001b3u;
    h ^= h >> 29;
  }
  return h;
}

static uint64_t add_to_checksum(uint64_t h, const void *from, size_t bytes) {
  const size_t words = bytes / 8 * 8;
  uint64_t word = 0;
  memcpy(&word, (const char *)from + words, bytes - words);
  return (add_words(h, from, words) ^ word) * 0x100000001b3u;
}

enum { CHECKSUM_BEGIN = 0x4ba1 };

static uint64_t checksum(struct header h, const char *payload) {
  h.checksum = 0;
  return add_to_checksum(add_to_checksum(CHECKSUM_BEGIN, &h, sizeof h), payload, h.payload_bytes);
}

uint64_t pack_sum(const void *data, size_t bytes) { return add_to_checksum(CHECKSUM_BEGIN, data, bytes); }

// ---------------------------------------------------------------- numbers

static size_t rounded_bytes(size_t bytes, uint32_t bits) {
  const size_t n = bytes / 4;
  return (n + GROUP - 1) / GROUP * 4 + n * (bits / 8);
}

// Rounds n floats to integers of `bits` bits and a sign in them. false: one is not finite.
static bool round_numbers(char *to, const char *from, size_t bytes, uint32_t bits) {
  const float top = bits == 16 ? 32767 : 127;
  for (size_t left = bytes / 4; left;) {
    const size_t n = left < GROUP ? left : GROUP;
    float x[GROUP], most = 0;
    memcpy(x, from, n * 4);
    for (size_t i = 0; i < n; i++) {
      if (!isfinite(x[i])) return false;
      most = fmaxf(most, fabsf(x[i]));
    }
    const float scale = most / top, inverse = scale > 0 ? 1 / scale : 0;
    memcpy(to, &scale, 4);
    to += 4;
    for (size_t i = 0; i < n; i++) {
      const float y = isfinite(inverse) ? fmaxf(-top, fminf(top, rintf(x[i] * inverse))) : 0;
      const int16_t wide = (int16_t)y;
      const int8_t narrow = (int8_t)y;
      if (bits == 16)
        memcpy(to, &wide, 2);
      else
        memcpy(to, &narrow, 1);
      to += bits / 8;
    }
    from += n * 4;
    left -= n;
  }
  return true;
}

static void widen_numbers(char *to, const char *from, size_t bytes, uint32_t bits) {
  for (size_t left = bytes / 4; left;) {
    const size_t n = left < GROUP ? left : GROUP;
    float scale, x[GROUP];
    memcpy(&scale, from, 4);
    from += 4;
    for (size_t i = 0; i < n; i++, from += bits / 8) {
      int16_t wide;
      int8_t narrow;
      memcpy(&wide, from, bits == 16 ? 2 : 1);
      memcpy(&narrow, from, 1);
      x[i] = scale * (float)(bits == 16 ? wide : narrow);
    }
    memcpy(to, x, n * 4);
    to += n * 4;
    left -= n;
  }
}

// ---------------------------------------------------------------- the walk

enum move { MEASURE, PACK, UNPACK };

// Which part of a state a value holds.
struct cut {
  const struct state_layout *layout;
  uint64_t position;   // of the state
  uint64_t first, end; // of the caches' positions
  bool grown;          // false: what does not grow
  bool logits;         // the optional part is there
  uint32_t bits;
};

enum { SOME_BYTES = 64 * GROUP * 4 }; // of a state at once: whole groups of numbers, and whole words of the checksum

static bool move_part(struct blob *state, size_t at, char *value, size_t bytes, uint32_t bits, enum move move) {
  char some[SOME_BYTES];
  if (bits == 32) {
    if (move == PACK) blob_copy(state, at, bytes, value);
    if (move == UNPACK) blob_fill(state, at, bytes, value);
    return true;
  }
  for (size_t n; bytes; at += n, value += rounded_bytes(n, bits), bytes -= n) {
    n = bytes < sizeof some ? bytes : sizeof some;
    if (move == UNPACK) widen_numbers(some, value, n, bits);
    if (move == UNPACK) blob_fill(state, at, n, some);
    if (move == PACK) blob_copy(state, at, n, some);
    if (move == PACK && !round_numbers(value, some, n, bits)) return false;
  }
  return true;
}

// Goes through a state and a value together, and returns the value's bytes. SIZE_MAX: a number is not finite.
// MEASURE: both may be NULL.
static size_t walk(const struct cut *cut, struct blob *state, char *value, enum move move) {
  size_t at = 0, used = 0;
  for (size_t i = 0; i < cut->layout->count; i++) {
    const deltaic_state_part *part = &cut->layout->parts[i];
    size_t bytes = state_part_bytes(part, cut->position), from = 0, some = bytes;
    if (part->optional && !cut->logits) continue;
    const bool grows = part->positions == UINT64_MAX;
    if (grows) from = cut->first * part->bytes, some = (cut->end - cut->first) * part->bytes;
    // The last logits decide the next token, and are small: they stay exact.
    const uint32_t bits = part->numbers && !part->optional ? cut->bits : 32;
    if (grows == cut->grown) {
      if (move != MEASURE && !move_part(state, at + from, value + used, some, bits, move)) return SIZE_MAX;
      used += bits == 32 ? some : rounded_bytes(some, bits);
    }
    at += bytes;
  }
  return used;
}

// ---------------------------------------------------------------- packing

static struct pack_bytes pack(const struct state_layout *layout, const struct pack_state *s, struct cut cut,
                              const struct pack_blocks *blocks) {
  const size_t list = blocks ? blocks->count * sizeof(struct listed_block) : 0;
  struct header h = {.bits = cut.bits,
                     .blocks = blocks ? (uint32_t)blocks->count : 0,
                     .fingerprint = layout->fingerprint,
                     .first = cut.grown ? cut.first : 0,
                     .end = cut.grown ? cut.end : s->position,
                     .state_bytes = s->state->size};
  struct pack_bytes out = {0};
  memcpy(h.magic, cut.grown ? block_magic : state_magic, sizeof h.magic);
  h.payload_bytes = list + walk(&cut, NULL, NULL, MEASURE);
  out.bytes = sizeof h + h.payload_bytes;
  out.data = malloc(out.bytes);
  if (!out.data) return (struct pack_bytes){0};
  char *payload = out.data + sizeof h;
  for (uint32_t i = 0; i < h.blocks; i++) {
    const struct pack_block *from = &blocks->items[i];
    struct listed_block b = {.first = from->first, .end = from->end, .checksum = from->checksum};
    memcpy(b.id, from->id, strlen(from->id)); // zeros behind it
    memcpy(payload + i * sizeof b, &b, sizeof b);
  }
  if (walk(&cut, s->state, payload + list, PACK) == SIZE_MAX) {
    free(out.data);
    cut.bits = 32;
    return pack(layout, s, cut, blocks);
  }
  h.checksum = checksum(h, payload);
  memcpy(out.data, &h, sizeof h);
  return out;
}

struct pack_bytes pack_fixed(const struct state_layout *layout, const struct pack_state *s,
                             const struct pack_blocks *blocks) {
  struct cut cut = {.layout = layout, .position = s->position, .bits = s->bits};
  if (!state_fits(layout, s->position, s->state->size, &cut.logits)) return (struct pack_bytes){0};
  return pack(layout, s, cut, blocks);
}

struct pack_bytes pack_grown(const struct state_layout *layout, const struct pack_state *s, uint64_t first,
                             uint64_t end) {
  struct cut cut = {layout, s->position, first, end, .grown = true, .bits = s->bits};
  if (first > end || end > s->position || !state_fits(layout, s->position, s->state->size, &cut.logits))
    return (struct pack_bytes){0};
  return pack(layout, s, cut, NULL);
}

// add_to_checksum() of bytes of a state.
static uint64_t add_state(uint64_t sum, const struct blob *state, size_t at, size_t bytes) {
  char some[SOME_BYTES];
  for (; bytes > sizeof some; at += sizeof some, bytes -= sizeof some) {
    blob_copy(state, at, sizeof some, some);
    sum = add_words(sum, some, sizeof some);
  }
  blob_copy(state, at, bytes, some);
  return add_to_checksum(sum, some, bytes);
}

uint64_t pack_checksum(const struct state_layout *layout, const struct pack_state *s, uint64_t first, uint64_t end) {
  uint64_t sum = CHECKSUM_BEGIN, at = 0;
  for (size_t i = 0; i < layout->count; i++) {
    const deltaic_state_part *part = &layout->parts[i];
    if (part->positions == UINT64_MAX)
      sum = add_state(sum, s->state, at + first * part->bytes, (end - first) * part->bytes);
    at += state_part_bytes(part, s->position);
  }
  return sum;
}

// ---------------------------------------------------------------- unpacking

static bool read_header(const struct state_layout *layout, const void *value, size_t bytes, const char *magic,
                        struct header *h) {
  if (bytes < sizeof *h) return false;
  memcpy(h, value, sizeof *h);
  return !memcmp(h->magic, magic, sizeof h->magic) && h->fingerprint == layout->fingerprint &&
         (h->bits == 32 || h->bits == 16 || h->bits == 8) && h->blocks <= PACK_BLOCKS;
}

bool pack_read_blocks(const struct state_layout *layout, const void *value, size_t bytes, struct pack_blocks *out,
                      uint64_t *position) {
  struct header h;
  uint64_t at = 0;
  if (!read_header(layout, value, bytes, state_magic, &h) || bytes - sizeof h < h.blocks * sizeof(struct listed_block))
    return false;
  out->count = h.blocks;
  for (uint32_t i = 0; i < h.blocks; i++) {
    struct listed_block b;
    struct pack_block *to = &out->items[i];
    memcpy(&b, (const char *)value + sizeof h + i * sizeof b, sizeof b);
    memcpy(to->id, b.id, PACK_ID);
    to->id[PACK_ID] = 0;
    to->first = b.first;
    to->end = b.end;
    to->checksum = b.checksum;
    if (b.first != at || b.end <= b.first || !to->id[0]) return false; // they follow each other
    at = b.end;
  }
  *position = h.end;
  return at == (layout->grows ? h.end : 0);
}

// Whether the payload is whole, and as long as the cut says.
static bool whole(const struct header *h, const struct cut *cut, const char *value, size_t bytes) {
  const size_t list = h->blocks * sizeof(struct listed_block);
  return h->payload_bytes == bytes - sizeof *h && h->payload_bytes == list + walk(cut, NULL, NULL, MEASURE) &&
         h->checksum == checksum(*h, value + sizeof *h);
}

struct blob *pack_open(const struct state_layout *layout, const void *value, size_t bytes) {
  struct header h;
  struct cut cut = {.layout = layout};
  if (!read_header(layout, value, bytes, state_magic, &h) || !state_fits(layout, h.end, h.state_bytes, &cut.logits))
    return NULL;
  cut.position = h.end;
  cut.bits = h.bits;
  if (!whole(&h, &cut, value, bytes)) return NULL;
  struct blob *state = state_create(layout, h.end, h.state_bytes, NULL);
  if (!state) return NULL;
  walk(&cut, state, (char *)value + sizeof h + h.blocks * sizeof(struct listed_block), UNPACK); // reads the value
  return state;
}

bool pack_add(struct blob *state, const struct pack_block *block, const struct pack_bytes *value) {
  const struct blocks *b = state->blocks;
  if (!b) return false;
  struct header h;
  struct cut cut = {b->layout, b->position, block->first, block->end, .grown = true};
  if (!read_header(b->layout, value->data, value->bytes, block_magic, &h) || h.first != block->first ||
      h.end != block->end || h.end > cut.position || h.blocks ||
      !state_fits(b->layout, cut.position, state->size, &cut.logits))
    return false;
  cut.bits = h.bits;
  if (!whole(&h, &cut, value->data, value->bytes)) return false;
  walk(&cut, state, value->data + sizeof h, UNPACK);
  return true;
}
