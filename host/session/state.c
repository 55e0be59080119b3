// state: saves a sequence's state as bytes, loads it, and forks sessions.
#include "platform.h"
#include "state_bytes.h"

#include <string.h>

static deltaic_status move_payload(struct deltaic_session *s, uint32_t slot, const struct state_header *h,
                                   uint64_t offset, char *data, uint64_t bytes, bool in) {
  const struct state_range range = {h->position, h->has_logits, offset, bytes, data};
  return state_move(s, slot, &range, in);
}

// ---------------------------------------------------------------- save

// The slot's, without the checksum.
static struct state_header header_of(const struct deltaic_session *s, uint32_t slot) {
  const struct slot *q = &s->slots[slot];
  struct state_header h = {.version = STATE_VERSION,
                           .has_logits = q->has_logits,
                           .fingerprint = s->model->weights.fingerprint,
                           .position = q->position,
                           .bytes = state_payload_bytes(s, q->position, q->has_logits)};
  state_header_mark(&h);
  return h;
}

static deltaic_status state_size(struct deltaic_session *s, uint32_t slot, size_t *bytes, const char *function) {
  deltaic_status status = session_check(s, slot, function);
  if (status != DELTAIC_OK) return status;
  if (!bytes) return fail(DELTAIC_INVALID_ARGUMENT, "%s: bytes is NULL", function);
  *bytes = sizeof(struct state_header) + state_payload_bytes(s, s->slots[slot].position, s->slots[slot].has_logits);
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
  struct state_header h = header_of(s, slot);
  char *payload = (char *)buffer + sizeof h;
  status = move_payload(s, slot, &h, 0, payload, h.bytes, false);
  if (status != DELTAIC_OK) return status;
  h.checksum = state_checksum(h, payload);
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

deltaic_status deltaic_sequence_save_range(deltaic_session *s, uint32_t sequence, uint64_t offset, void *buffer,
                                           size_t bytes) {
  static const char function[] = "deltaic_sequence_save_range";
  size_t all, done = 0;
  deltaic_status status = state_size(s, sequence, &all, function);
  if (status != DELTAIC_OK) return status;
  if (!buffer) return fail(DELTAIC_INVALID_ARGUMENT, "%s: buffer is NULL", function);
  if (offset > all || bytes > all - offset)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: %zu bytes at %llu are outside a state of %zu", function, bytes,
                (unsigned long long)offset, all);
  const struct state_header h = header_of(s, sequence);
  if (offset < sizeof h) {
    done = bytes < sizeof h - offset ? bytes : sizeof h - (size_t)offset;
    memcpy(buffer, (const char *)&h + offset, done);
  }
  return move_payload(s, sequence, &h, offset + done - sizeof h, (char *)buffer + done, bytes - done, false);
}

// ---------------------------------------------------------------- reset and copy

// The part of a slot's row that a sequence of `position` tokens has written. Of a cache of all positions only that from
// position `first` on, or a little before it: views begin at whole alignments.
static struct tensor used_of(const struct state_entry *e, uint32_t slot, uint64_t first, uint64_t position) {
  struct tensor row = state_row(e->tensor, slot);
  if (!e->position_cols) return row;
  if (position < row.cols / e->position_cols) row.cols = (uint32_t)position * e->position_cols;
  if (e->window) return row;
  const uint64_t skipped = first / TENSOR_ALIGN * TENSOR_ALIGN * e->position_cols;
  row.offset += (skipped < row.cols ? skipped : 0) * sizeof(float);
  row.cols -= skipped < row.cols ? (uint32_t)skipped : row.cols;
  return row;
}

// Copies slot `from` to slot `to`, or clears it from position `first` on if `from` is NULL, in one recording.
static deltaic_status run_copies(struct deltaic_session *s, uint32_t to, const uint32_t *from, uint64_t first,
                                 uint64_t position) {
  struct recorder *c = s->prefill;
  struct oplist *l = &s->list;
  c->functions->recorder_begin(c, false, NULL);
  oplist_begin(l);
  for (uint32_t i = 0; i < s->model->spec.L; i++)
    for (int k = 0; k < s->lists[i].count; k++) {
      const struct state_entry *e = &s->lists[i].entries[k];
      const struct tensor row = used_of(e, to, first, position);
      if (row.cols) op_copy(l, row, from ? used_of(e, *from, first, position) : (struct tensor){0});
    }
  op_copy(l, state_row(&s->seen, to), from ? state_row(&s->seen, *from) : (struct tensor){0});
  op_copy(l, state_row(&s->last, to), from ? state_row(&s->last, *from) : (struct tensor){0});
  c->functions->recorder_list(c, l);
  deltaic_status status = c->functions->recorder_run(c);
  if (status != DELTAIC_OK) s->slots[to].loaded = 0; // a load does not go on behind this
  s->slots[to].broken = status != DELTAIC_OK;
  return status;
}

static deltaic_status check_sequence(const struct deltaic_session *s, uint32_t sequence, const char *function) {
  deltaic_status status = session_check(s, sequence, function);
  return status == DELTAIC_BAD_STATE ? DELTAIC_OK : status; // the caller repairs a broken sequence
}

// first: what a load writes before this position need not be cleared.
static deltaic_status clear_slot(struct deltaic_session *s, uint32_t slot, uint64_t first) {
  const struct slot *q = &s->slots[slot];
  if (s->shape.sequences == 1) atomic_store(&s->cancel, false); // others may still need it
  deltaic_status status = run_copies(s, slot, NULL, first, q->broken && !q->loaded ? UINT64_MAX : q->position);
  if (status == DELTAIC_OK) s->slots[slot] = (struct slot){.position = 0};
  return status;
}

deltaic_status deltaic_sequence_reset(deltaic_session *s, uint32_t sequence) {
  deltaic_status status = check_sequence(s, sequence, "deltaic_sequence_reset");
  return status == DELTAIC_OK ? clear_slot(s, sequence, 0) : status;
}

deltaic_status deltaic_sequence_copy(deltaic_session *s, uint32_t to, uint32_t from) {
  deltaic_status status = check_sequence(s, to, "deltaic_sequence_copy");
  if (status == DELTAIC_OK) status = session_check(s, from, "deltaic_sequence_copy");
  if (status != DELTAIC_OK || to == from) return status;
  status = run_copies(s, to, &from, 0, s->slots[from].position);
  if (status == DELTAIC_OK) s->slots[to] = s->slots[from];
  return status;
}

// ---------------------------------------------------------------- load

// Checks what a header says of a state of so many bytes.
static deltaic_status check_header(struct deltaic_session *s, const struct state_header *h, uint64_t bytes) {
  if (h->version != STATE_VERSION)
    return fail(DELTAIC_UNSUPPORTED, "saved state: version %u, but this library reads %d", h->version, STATE_VERSION);
  if (h->fingerprint != s->model->weights.fingerprint)
    return fail(DELTAIC_BAD_FILE, "saved state: it belongs to another model");
  if (h->has_logits > 1 || h->position > INT32_MAX) return fail(DELTAIC_BAD_FILE, "saved state: malformed header");
  if (model_grows(&s->model->spec) && h->position > s->shape.context)
    return fail(DELTAIC_CONTEXT_FULL, "saved state: %llu tokens do not fit this session's context of %u",
                (unsigned long long)h->position, s->shape.context);
  if (h->bytes != bytes - sizeof *h || h->bytes != state_payload_bytes(s, h->position, h->has_logits))
    return fail(DELTAIC_BAD_FILE, "saved state: its size differs from the size in its header");
  return DELTAIC_OK;
}

// Checks everything that can be wrong with a buffer before anything changes.
static deltaic_status check_state(struct deltaic_session *s, const char *data, size_t bytes, struct state_header *h) {
  deltaic_status status = state_read_header(data, bytes, h);
  if (status == DELTAIC_OK) status = check_header(s, h, bytes);
  if (status == DELTAIC_OK && h->checksum != state_checksum(*h, data + sizeof *h))
    status = fail(DELTAIC_BAD_FILE, "saved state: the checksum does not match: the data is damaged");
  return status;
}

static deltaic_status load(struct deltaic_session *s, uint32_t slot, const void *buffer, size_t bytes,
                           const char *function) {
  struct state_header h;
  deltaic_status status = check_sequence(s, slot, function);
  if (status != DELTAIC_OK) return status;
  if (!buffer) return fail(DELTAIC_INVALID_ARGUMENT, "%s: buffer is NULL", function);
  status = check_state(s, buffer, bytes, &h);
  if (status != DELTAIC_OK) return status;
  status = clear_slot(s, slot, h.position); // positions of caches that are not in the buffer must be empty
  if (status != DELTAIC_OK) return status;
  status = move_payload(s, slot, &h, 0, (char *)buffer + sizeof h, h.bytes, true); // it only reads the buffer
  s->slots[slot] = (struct slot){.position = h.position, .has_logits = h.has_logits, .broken = status != DELTAIC_OK};
  return status;
}

// Takes the header of a state that is loaded range by range, and empties the slot.
static deltaic_status begin_load(struct deltaic_session *s, uint32_t slot, const void *buffer, size_t bytes) {
  struct state_header h;
  deltaic_status status = state_read_header(buffer, bytes, &h);
  if (status == DELTAIC_OK) status = check_header(s, &h, sizeof h + h.bytes);
  if (status == DELTAIC_OK && bytes - sizeof h > h.bytes)
    status = fail(DELTAIC_BAD_FILE, "saved state: %zu bytes are more than the header says", bytes);
  if (status == DELTAIC_OK) status = clear_slot(s, slot, h.position);
  if (status == DELTAIC_OK)
    s->slots[slot] =
        (struct slot){.position = h.position, .has_logits = h.has_logits, .broken = true, .loaded = sizeof h};
  return status;
}

deltaic_status deltaic_sequence_load_range(deltaic_session *s, uint32_t sequence, uint64_t offset, const void *buffer,
                                           size_t bytes) {
  static const char function[] = "deltaic_sequence_load_range";
  deltaic_status status = check_sequence(s, sequence, function);
  if (status != DELTAIC_OK) return status;
  if (!buffer) return fail(DELTAIC_INVALID_ARGUMENT, "%s: buffer is NULL", function);
  struct slot *q = &s->slots[sequence];
  if (offset && offset != q->loaded)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: the range begins at %llu instead of %llu", function,
                (unsigned long long)offset, (unsigned long long)q->loaded);
  if (!offset) status = begin_load(s, sequence, buffer, bytes);
  if (status != DELTAIC_OK) return status;
  const size_t head = offset ? 0 : sizeof(struct state_header);
  const struct state_header h = header_of(s, sequence);
  const uint64_t at = q->loaded - sizeof h, more = bytes - head;
  if (more > h.bytes - at)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: the range has %llu bytes more than the rest of the state", function,
                (unsigned long long)(more - (h.bytes - at)));
  status = move_payload(s, sequence, &h, at, (char *)buffer + head, more, true); // it only reads the buffer
  q->loaded = status == DELTAIC_OK && at + more < h.bytes ? q->loaded + more : 0;
  q->broken = status != DELTAIC_OK || q->loaded;
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
