// serve_move: moves states between slots and host memory, piece by piece, between the steps of running texts. --memory
// does not count a state that is moving. So a save allocates its memory only when its first piece moves, and saves run
// one after the other.
#include "common.h"
#include "serve_slots.h"

#include <assert.h>
#include <stdio.h>

enum { PIECE_BYTES = 4 << 20 };

bool moves_may_run(const struct batch *b) { return time_now() - b->stepped < 0.5e-3 * b->server->options.stall; }

bool move_active(const struct batch *b, uint32_t slot) { return b->moves[slot].done; }

static struct move *begin_move(struct batch *b, uint32_t slot, move_end *done) {
  assert(slot < b->slots && !move_active(b, slot));
  b->moves[slot] = (struct move){.done = done, .order = ++b->moves_begun};
  ++b->moving;
  return &b->moves[slot];
}

void move_in(struct batch *b, uint32_t slot, struct blob *state, move_end *done) {
  struct move *m = begin_move(b, slot, done);
  m->state = blob_hold(state);
  m->in = true;
}

void move_out(struct batch *b, uint32_t slot, const char *after, uint64_t position, move_end *done) {
  struct move *m = begin_move(b, slot, done);
  snprintf(m->after, sizeof m->after, "%s", after ? after : "");
  m->position = position;
}

// Removes the move, so that `done` may begin another one.
static struct move end_move(struct batch *b, uint32_t slot) {
  const struct move move = b->moves[slot];
  b->moves[slot] = (struct move){0};
  --b->moving;
  return move;
}

static void finish(struct batch *b, uint32_t slot, bool good) {
  const struct move move = end_move(b, slot);
  struct metrics *m = &b->server->metrics;
  if (good && !move.in) metrics_add(m, METRIC_STATES_SAVED, 1);
  move.done(b, slot, good ? move.state : NULL);
  blob_drop(move.state);
}

void move_drop(struct batch *b, uint32_t slot) {
  if (move_active(b, slot)) blob_drop(end_move(b, slot).state);
}

// Allocates the memory of a save. Returns false if there is none, or if the slot has no state.
static bool make_room(struct batch *b, uint32_t slot) {
  struct move *m = &b->moves[slot];
  size_t bytes = 0;
  if (m->state) return true;
  if (deltaic_sequence_state_size(b->session, slot, &bytes)) return false;
  struct blob *before = *m->after ? store_peek(b->server->store, m->after) : NULL;
  const bool same = before && before->blocks && before->blocks->position == m->position; // not another under its key
  const uint64_t position = deltaic_sequence_position(b->session, slot);
  m->state = state_create(&b->server->layout, position, bytes, same ? before : NULL);
  blob_drop(before);
  return m->state;
}

void move_give_up(struct batch *b, uint32_t slot) {
  b->moves[slot].given_up = true;
  b->moves[slot].order = 0;
}

// A save skips the blocks that it shares with an earlier state. It ends, because the end of a state is in no block.
static void skip_shared(struct move *m) {
  for (struct span span; !m->in && (span = blob_span(m->state, m->at)).shared;) m->at += span.size;
}

static void move_piece(struct batch *b, uint32_t slot) {
  struct move *m = &b->moves[slot];
  struct metrics *metrics = &b->server->metrics;
  if (m->given_up || !make_room(b, slot)) {
    finish(b, slot, false);
    return;
  }
  skip_shared(m);
  const struct span span = blob_span(m->state, m->at);
  const size_t bytes = span.size < PIECE_BYTES ? span.size : PIECE_BYTES;
  const deltaic_status status = m->in ? deltaic_sequence_load_range(b->session, slot, m->at, span.bytes, bytes)
                                      : deltaic_sequence_save_range(b->session, slot, m->at, span.bytes, bytes);
  m->at += bytes;
  metrics_add(metrics, METRIC_STATE_PIECES, 1);
  metrics_add(metrics, m->in ? METRIC_STATE_BYTES_LOADED : METRIC_STATE_BYTES_SAVED, (int64_t)bytes);
  if (status || m->at == m->state->size) finish(b, slot, !status);
}

// Returns the slot whose state moves next. At least one state must be moving. The oldest save and the oldest load take
// turns.
static uint32_t next(struct batch *b) {
  uint32_t first[2] = {b->slots, b->slots}; // out, in
  for (uint32_t i = 0; i < b->slots; ++i) {
    uint32_t *at = &first[b->moves[i].in];
    if (move_active(b, i) && (*at == b->slots || b->moves[i].order < b->moves[*at].order)) *at = i;
  }
  if (first[!b->moved_in] < b->slots) b->moved_in = !b->moved_in;
  return first[b->moved_in];
}

void moves_run(struct batch *b) {
  if (!b->moving) return;
  metrics_add(&b->server->metrics, METRIC_STATE_ROUNDS, 1);
  do move_piece(b, next(b));
  while (b->moving && moves_may_run(b));
}

void moves_finish(struct batch *b, double until) {
  while (b->moving && time_now() < until) move_piece(b, next(b));
  if (b->check) b->check->left = true; // the check has not found out whether the state is good
  while (b->moving) finish(b, next(b), false);
}
