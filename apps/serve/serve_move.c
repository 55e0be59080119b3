// serve_move: states on their way between slots and host memory. They move piece by piece between the steps of running
// texts, those of several slots in turn.
#include "common.h"
#include "serve_slots.h"

enum { PIECE_BYTES = 4 << 20 };

bool moves_may_run(const struct batch *b) { return time_now() - b->stepped < 0.5e-3 * b->server->options.stall; }

bool move_active(const struct batch *b, uint32_t slot) { return b->moves[slot].done; }

void move_in(struct batch *b, uint32_t slot, struct blob *state, move_end *done) {
  b->moves[slot] = (struct move){.done = done, .state = blob_hold(state), .in = true};
  ++b->moving;
}

// Takes the move away, so that `done` may begin another one.
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

void move_out(struct batch *b, uint32_t slot, const char *after, move_end *done) {
  size_t bytes = 0;
  struct blob *before = after ? store_peek(b->server->store, after) : NULL;
  const deltaic_status status = deltaic_sequence_state_size(b->session, slot, &bytes);
  const uint64_t position = deltaic_sequence_position(b->session, slot);
  b->moves[slot] = (struct move){.done = done};
  if (!status) b->moves[slot].state = state_create(&b->server->layout, position, bytes, before);
  blob_drop(before);
  ++b->moving;
  if (!b->moves[slot].state) finish(b, slot, false);
}

void move_drop(struct batch *b, uint32_t slot) {
  if (move_active(b, slot)) blob_drop(end_move(b, slot).state);
}

// What a state that is saved shares with an earlier one is there already. The end of a state is in no block.
static void skip_shared(struct move *m) {
  for (struct span span; !m->in && (span = blob_span(m->state, m->at)).shared;) m->at += span.size;
}

static void move_piece(struct batch *b, uint32_t slot) {
  struct move *m = &b->moves[slot];
  struct metrics *metrics = &b->server->metrics;
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

// The next slot whose state moves; there is one.
static uint32_t next(struct batch *b) {
  do b->move_turn = (b->move_turn + 1) % b->slots;
  while (!move_active(b, b->move_turn));
  return b->move_turn;
}

void moves_run(struct batch *b, bool one) {
  if (one && b->moving) metrics_add(&b->server->metrics, METRIC_STATE_ROUNDS, 1);
  for (; b->moving && (one || moves_may_run(b)); one = false) move_piece(b, next(b));
}

void moves_finish(struct batch *b, double until) {
  while (b->moving && time_now() < until) move_piece(b, next(b));
  if (b->check) b->check->left = true; // it is not known to be good or bad
  while (b->moving) finish(b, next(b), false);
}
