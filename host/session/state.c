// state: saves a sequence's state as bytes, loads it, and forks sessions.
//
// The format is little endian, like every known device:
//   a header, then the state tensors of each layer in order, then the bits of seen tokens, then the last logits if
//   there are any. A cache is written as its positions from the oldest that can still be read to the newest, so that it
//   also fits a session with another context or batch. The checksum is FNV-1a over everything after the header, eight
//   bytes at a time.
#include "hash.h"
#include "platform.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>

struct state_header {
  char magic[8];
  uint32_t version, has_logits;
  uint64_t fingerprint; // of the model's tensors
  uint64_t position;
  uint64_t bytes;    // bytes that follow the header
  uint64_t checksum; // of everything
};

static const char state_magic[8] = "DELTAIC\x1a";
enum { STATE_VERSION = 2 }; // 1: the fingerprint was one hash over all tensors

static uint64_t checksum(struct state_header h, const char *payload) {
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

// The row of a tensor that belongs to a slot.
static struct tensor slot_of(const struct tensor *t, uint32_t slot) { return tensor_rows(*t, slot, 1); }

static uint64_t payload_bytes(const struct deltaic_session *s, uint64_t position, bool has_logits) {
  const struct tensor seen = slot_of(&s->seen, 0), last = slot_of(&s->last, 0);
  uint64_t bytes = tensor_bytes(&seen) + (has_logits ? tensor_bytes(&last) : 0);
  for (uint32_t i = 0; i < s->model->spec.L; i++)
    for (int e = 0; e < s->lists[i].count; e++) bytes += entry_bytes(&s->lists[i].entries[e], position);
  return bytes;
}

// Where the payload's bytes are on the device.
struct layout {
  struct buffer_part *parts;
  size_t n, room;
  char *data; // of the next part
};

static void add_range(struct layout *l, const struct tensor *t, uint64_t offset, uint64_t bytes) {
  if (l->n < l->room) l->parts[l->n] = (struct buffer_part){t->buffer, t->offset + offset, bytes, l->data};
  l->n++;
  l->data += bytes;
}

// The live positions of a ring buffer are at most two contiguous ranges.
static void add_cache(struct layout *l, const struct state_entry *e, uint32_t slot, uint64_t position) {
  const struct tensor cache = slot_of(e->tensor, slot);
  const uint64_t live = live_positions(e, position), size = e->position_cols * sizeof(float);
  const uint64_t capacity = e->tensor->cols / e->position_cols;
  for (uint64_t p = position - live; p < position;) {
    const uint64_t at = p % capacity, run = position - p < capacity - at ? position - p : capacity - at;
    add_range(l, &cache, at * size, run * size);
    p += run;
  }
}

// Without room for them the ranges are only counted.
static struct layout layout_of(const struct deltaic_session *s, uint32_t slot, uint64_t position, bool has_logits,
                               struct layout l) {
  const struct tensor seen = slot_of(&s->seen, slot), last = slot_of(&s->last, slot);
  for (uint32_t i = 0; i < s->model->spec.L; i++)
    for (int k = 0; k < s->lists[i].count; k++) {
      const struct state_entry *e = &s->lists[i].entries[k];
      const struct tensor row = slot_of(e->tensor, slot);
      if (e->position_cols)
        add_cache(&l, e, slot, position);
      else
        add_range(&l, &row, 0, tensor_bytes(&row));
    }
  add_range(&l, &seen, 0, tensor_bytes(&seen));
  if (has_logits) add_range(&l, &last, 0, tensor_bytes(&last));
  return l;
}

// Copies the payload from the device, or to it.
static deltaic_status move_payload(struct deltaic_session *s, uint32_t slot, const struct state_header *h, char *data,
                                   bool in) {
  struct backend *b = s->model->backend;
  struct layout l = layout_of(s, slot, h->position, h->has_logits, (struct layout){.data = data});
  const size_t n = l.n;
  struct buffer_part *parts = malloc(n * sizeof *parts);
  if (!parts) return fail_memory("the parts of a state", n * sizeof *parts);
  layout_of(s, slot, h->position, h->has_logits, (struct layout){.parts = parts, .room = n, .data = data});
  deltaic_status status = in ? DELTAIC_OK : b->functions->buffer_read_parts(b, parts, n);
  for (size_t i = 0; i < n && in && !status; i++)
    status = b->functions->buffer_write(b, parts[i].buffer, parts[i].offset, parts[i].data, parts[i].bytes);
  free(parts);
  return status;
}

static deltaic_status read_header(const void *state, size_t bytes, struct state_header *h) {
  if (bytes < sizeof *h) return fail(DELTAIC_BAD_FILE, "saved state: %zu bytes are too few for a header", bytes);
  memcpy(h, state, sizeof *h);
  if (memcmp(h->magic, state_magic, sizeof h->magic)) return fail(DELTAIC_BAD_FILE, "saved state: not a saved state");
  return DELTAIC_OK;
}

deltaic_status deltaic_state_position(const void *state, size_t bytes, uint64_t *position) {
  struct state_header h;
  if (!state || !position)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_state_position: %s is NULL", !state ? "state" : "position");
  deltaic_status status = read_header(state, bytes, &h);
  if (status == DELTAIC_OK) *position = h.position;
  return status;
}

deltaic_status deltaic_state_seal(void *state, size_t bytes) {
  struct state_header h;
  if (!state) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_state_seal: state is NULL");
  deltaic_status status = read_header(state, bytes, &h);
  if (status != DELTAIC_OK) return status;
  h.bytes = bytes - sizeof h;
  h.checksum = checksum(h, (char *)state + sizeof h);
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
  const struct tensor seen = slot_of(&s->seen, 0), last = slot_of(&s->last, 0);
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

// ---------------------------------------------------------------- save

static deltaic_status state_size(struct deltaic_session *s, uint32_t slot, size_t *bytes, const char *function) {
  deltaic_status status = session_check(s, slot, function);
  if (status != DELTAIC_OK) return status;
  if (!bytes) return fail(DELTAIC_INVALID_ARGUMENT, "%s: bytes is NULL", function);
  *bytes = sizeof(struct state_header) + payload_bytes(s, s->slots[slot].position, s->slots[slot].has_logits);
  return DELTAIC_OK;
}

static deltaic_status save(struct deltaic_session *s, uint32_t slot, void *buffer, size_t capacity, size_t *written,
                           const char *function) {
  size_t bytes;
  deltaic_status status = state_size(s, slot, &bytes, function);
  if (status != DELTAIC_OK) return status;
  if (!buffer) return fail(DELTAIC_INVALID_ARGUMENT, "%s: buffer is NULL", function);
  if (capacity < bytes)
    return fail(DELTAIC_BUFFER_TOO_SMALL, "the state needs %zu bytes, but the buffer has %zu", bytes, capacity);
  struct state_header h = {.version = STATE_VERSION,
                           .has_logits = s->slots[slot].has_logits,
                           .fingerprint = s->model->weights.fingerprint,
                           .position = s->slots[slot].position,
                           .bytes = bytes - sizeof h};
  memcpy(h.magic, state_magic, sizeof h.magic);
  char *payload = (char *)buffer + sizeof h;
  status = move_payload(s, slot, &h, payload, false);
  if (status != DELTAIC_OK) return status;
  h.checksum = checksum(h, payload);
  memcpy(buffer, &h, sizeof h);
  if (written) *written = bytes;
  return DELTAIC_OK;
}

deltaic_status deltaic_session_state_size(deltaic_session *s, size_t *bytes) {
  return state_size(s, 0, bytes, "deltaic_session_state_size");
}

deltaic_status deltaic_sequence_state_size(deltaic_session *s, uint32_t sequence, size_t *bytes) {
  return state_size(s, sequence, bytes, "deltaic_sequence_state_size");
}

deltaic_status deltaic_session_save(deltaic_session *s, void *buffer, size_t capacity, size_t *written) {
  return save(s, 0, buffer, capacity, written, "deltaic_session_save");
}

deltaic_status deltaic_sequence_save(deltaic_session *s, uint32_t sequence, void *buffer, size_t capacity,
                                     size_t *written) {
  return save(s, sequence, buffer, capacity, written, "deltaic_sequence_save");
}

// ---------------------------------------------------------------- reset and copy

// The part of a slot's row that a sequence of `position` tokens has written.
static struct tensor used_of(const struct state_entry *e, uint32_t slot, uint64_t position) {
  struct tensor row = slot_of(e->tensor, slot);
  if (e->position_cols && position < row.cols / e->position_cols) row.cols = (uint32_t)position * e->position_cols;
  return row;
}

// Copies slot `from` to slot `to`, or clears it if `from` is NULL, in one recording.
static deltaic_status run_copies(struct deltaic_session *s, uint32_t to, const uint32_t *from, uint64_t position) {
  struct recorder *c = s->prefill;
  struct oplist *l = &s->list;
  c->functions->recorder_begin(c, false, NULL);
  oplist_begin(l);
  for (uint32_t i = 0; i < s->model->spec.L; i++)
    for (int k = 0; k < s->lists[i].count; k++) {
      const struct state_entry *e = &s->lists[i].entries[k];
      const struct tensor row = used_of(e, to, position);
      if (row.cols) op_copy(l, row, from ? used_of(e, *from, position) : (struct tensor){0});
    }
  op_copy(l, slot_of(&s->seen, to), from ? slot_of(&s->seen, *from) : (struct tensor){0});
  op_copy(l, slot_of(&s->last, to), from ? slot_of(&s->last, *from) : (struct tensor){0});
  c->functions->recorder_list(c, l);
  deltaic_status status = c->functions->recorder_run(c);
  s->slots[to].broken = status != DELTAIC_OK;
  return status;
}

static deltaic_status check_sequence(const struct deltaic_session *s, uint32_t sequence, const char *function) {
  deltaic_status status = session_check(s, sequence, function);
  return status == DELTAIC_BAD_STATE ? DELTAIC_OK : status; // the caller repairs a broken sequence
}

static deltaic_status clear_slot(struct deltaic_session *s, uint32_t slot) {
  const struct slot *q = &s->slots[slot];
  if (s->shape.sequences == 1) atomic_store(&s->cancel, false); // others may still need it
  deltaic_status status = run_copies(s, slot, NULL, q->broken ? UINT64_MAX : q->position);
  if (status == DELTAIC_OK) s->slots[slot] = (struct slot){.position = 0};
  return status;
}

deltaic_status deltaic_sequence_reset(deltaic_session *s, uint32_t sequence) {
  deltaic_status status = check_sequence(s, sequence, "deltaic_sequence_reset");
  return status == DELTAIC_OK ? clear_slot(s, sequence) : status;
}

deltaic_status deltaic_sequence_copy(deltaic_session *s, uint32_t to, uint32_t from) {
  deltaic_status status = check_sequence(s, to, "deltaic_sequence_copy");
  if (status == DELTAIC_OK) status = session_check(s, from, "deltaic_sequence_copy");
  if (status != DELTAIC_OK || to == from) return status;
  status = run_copies(s, to, &from, s->slots[from].position);
  if (status == DELTAIC_OK) s->slots[to] = s->slots[from];
  return status;
}

// ---------------------------------------------------------------- load

// Checks everything that can be wrong with a buffer before anything changes.
static deltaic_status check_state(struct deltaic_session *s, const char *data, size_t bytes, struct state_header *h) {
  deltaic_status status = read_header(data, bytes, h);
  if (status != DELTAIC_OK) return status;
  if (h->version != STATE_VERSION)
    return fail(DELTAIC_UNSUPPORTED, "saved state: version %u, but this library reads %d", h->version, STATE_VERSION);
  if (h->fingerprint != s->model->weights.fingerprint)
    return fail(DELTAIC_BAD_FILE, "saved state: it belongs to another model");
  if (h->has_logits > 1 || h->position > INT32_MAX) return fail(DELTAIC_BAD_FILE, "saved state: malformed header");
  if (model_grows(&s->model->spec) && h->position > s->shape.context)
    return fail(DELTAIC_CONTEXT_FULL, "saved state: %llu tokens do not fit this session's context of %u",
                (unsigned long long)h->position, s->shape.context);
  if (h->bytes != bytes - sizeof *h || h->bytes != payload_bytes(s, h->position, h->has_logits))
    return fail(DELTAIC_BAD_FILE, "saved state: its size differs from the size in its header");
  if (h->checksum != checksum(*h, data + sizeof *h))
    return fail(DELTAIC_BAD_FILE, "saved state: the checksum does not match: the data is damaged");
  return DELTAIC_OK;
}

static deltaic_status load(struct deltaic_session *s, uint32_t slot, const void *buffer, size_t bytes,
                           const char *function) {
  struct state_header h;
  deltaic_status status = check_sequence(s, slot, function);
  if (status != DELTAIC_OK) return status;
  if (!buffer) return fail(DELTAIC_INVALID_ARGUMENT, "%s: buffer is NULL", function);
  status = check_state(s, buffer, bytes, &h);
  if (status != DELTAIC_OK) return status;
  status = clear_slot(s, slot); // positions of caches that are not in the buffer must be empty
  if (status != DELTAIC_OK) return status;
  status = move_payload(s, slot, &h, (char *)buffer + sizeof h, true); // it only reads the buffer
  s->slots[slot] = (struct slot){h.position, h.has_logits, .broken = status != DELTAIC_OK};
  return status;
}

deltaic_status deltaic_session_load(deltaic_session *s, const void *buffer, size_t bytes) {
  return load(s, 0, buffer, bytes, "deltaic_session_load");
}

deltaic_status deltaic_sequence_load(deltaic_session *s, uint32_t sequence, const void *buffer, size_t bytes) {
  return load(s, sequence, buffer, bytes, "deltaic_sequence_load");
}

// ---------------------------------------------------------------- files and forks

static deltaic_status save_to_memory(struct deltaic_session *s, uint32_t slot, void **data, size_t *bytes,
                                     const char *function) {
  deltaic_status status = state_size(s, slot, bytes, function);
  if (status != DELTAIC_OK) return status;
  *data = platform_alloc(*bytes, TENSOR_ALIGN);
  if (!*data) return fail_memory("a saved state", *bytes);
  status = save(s, slot, *data, *bytes, NULL, function);
  if (status != DELTAIC_OK) platform_free(*data);
  return status;
}

deltaic_status deltaic_session_save_file(deltaic_session *s, const char *path) {
  void *data;
  size_t bytes;
  if (!path) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_save_file: path is NULL");
  deltaic_status status = save_to_memory(s, 0, &data, &bytes, "deltaic_session_save_file");
  if (status != DELTAIC_OK) return status;
  status = file_replace(path, data, bytes);
  platform_free(data);
  return status;
}

deltaic_status deltaic_session_load_file(deltaic_session *s, const char *path) {
  if (!path) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_load_file: path is NULL");
  struct file_view view;
  deltaic_status status = file_map(path, &view);
  if (status != DELTAIC_OK) return status;
  status = deltaic_session_load(s, view.data ? view.data : "", view.bytes);
  if (status != DELTAIC_OK) fail(status, "%s: %s", path, deltaic_last_error());
  file_unmap(&view);
  return status;
}

static deltaic_status fork_slot(struct deltaic_session *s, struct deltaic_session *fork, uint32_t slot) {
  void *data;
  size_t bytes;
  if (!s->slots[slot].position && !s->slots[slot].broken) return DELTAIC_OK; // as empty as a new slot
  deltaic_status status = save_to_memory(s, slot, &data, &bytes, "deltaic_session_fork");
  if (status != DELTAIC_OK) return status;
  status = load(fork, slot, data, bytes, "deltaic_session_fork");
  platform_free(data);
  return status;
}

deltaic_status deltaic_session_fork(deltaic_session *s, deltaic_session **out) {
  static const deltaic_rule rules[] = {
      [DELTA_AUTO] = DELTAIC_RULE_AUTO, [DELTA_RECURRENT] = DELTAIC_RULE_RECURRENT, [DELTA_CHUNK] = DELTAIC_RULE_CHUNK};
  if (refuse_null("deltaic_session_fork", "session,out", s, out)) return DELTAIC_INVALID_ARGUMENT;
  deltaic_session_options options = {.size = sizeof options,
                                     .context = s->shape.context,
                                     .batch = s->shape.batch,
                                     .rule = rules[s->form],
                                     .precision = s->matrices ? DELTAIC_PRECISION_FAST : DELTAIC_PRECISION_FLOAT32,
                                     .sequences = s->shape.sequences};
  deltaic_session *fork;
  deltaic_status status = deltaic_session_create(s->model, &options, &fork);
  if (status != DELTAIC_OK) return status;
  for (uint32_t i = 0; i < s->shape.sequences && status == DELTAIC_OK; i++) status = fork_slot(s, fork, i);
  if (status == DELTAIC_OK)
    *out = fork;
  else
    deltaic_session_free(fork);
  return status;
}
