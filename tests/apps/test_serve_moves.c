// States of `deltaic serve` by themselves: in blocks, on their way piece by piece, in memory.
#include "common.h"
#include "serve_slots.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEXT = 1200 };
static int32_t text[TEXT];
static deltaic_context *context;
static deltaic_device *device;

// A server whose model has caches of all positions in half of its layers.
struct rig {
  struct server server;
  struct batch b;
};

static struct rig *open_rig_of(uint32_t slots, uint64_t memory) {
  struct rig *r = calloc(1, sizeof *r);
  const deltaic_session_options options = {.size = sizeof options, .context = TEXT, .sequences = slots};
  const struct store_options store = {.bytes = {memory, memory}};
  assert_non_null(r);
  assert_int_equal(
      deltaic_model_open(device, TESTS_DIR "/vectors/models/tiny_delta_net_global", NULL, &r->server.engine.model),
      DELTAIC_OK);
  assert_int_equal(deltaic_session_create(r->server.engine.model, &options, &r->b.session), DELTAIC_OK);
  assert_true(state_layout_read(r->b.session, 1, &r->server.layout));
  r->server.store = store_open(&store, &r->server.metrics);
  r->b.server = &r->server;
  r->b.slots = slots;
  pthread_mutex_init(&r->b.lock, NULL);
  return r;
}

static struct rig *open_rig(uint64_t memory) { return open_rig_of(2, memory); }

static void close_rig(struct rig *r) {
  store_close(r->server.store);
  state_layout_free(&r->server.layout);
  deltaic_session_free(r->b.session);
  deltaic_model_close(r->server.engine.model);
  free(r);
}

static void read_to(struct rig *r, uint32_t slot, size_t stop) {
  const size_t at = deltaic_sequence_position(r->b.session, slot);
  const deltaic_piece piece = {.sequence = slot, .tokens = text + at, .count = stop - at};
  assert_int_equal(deltaic_session_eval_batch(r->b.session, &piece, 1), DELTAIC_OK);
}

static int64_t metric(struct rig *r, enum metric m) { return metrics_get(&r->server.metrics, m); }

// What moved last; NULL: it did not get there.
static struct blob *came;
static uint32_t ended_slots[16];
static int ends;
static void ended(struct batch *b, uint32_t slot, struct blob *state) {
  assert_false(move_active(b, slot));
  blob_drop(came);
  came = state ? blob_hold(state) : NULL;
  ended_slots[ends++ % 16] = slot;
}

static struct blob *save_after(struct rig *r, uint32_t slot, const char *after, uint64_t position) {
  move_out(&r->b, slot, after, position, ended);
  moves_finish(&r->b, INFINITY);
  assert_non_null(came);
  struct blob *state = came;
  came = NULL;
  return state;
}

static struct blob *save(struct rig *r, uint32_t slot) { return save_after(r, slot, NULL, 0); }

static void has_the_bytes_of(struct rig *r, uint32_t slot, const struct blob *state) {
  size_t bytes;
  assert_int_equal(deltaic_sequence_state_size(r->b.session, slot, &bytes), DELTAIC_OK);
  assert_int_equal(state->size, bytes);
  char *want = malloc(bytes), *got = malloc(bytes);
  assert_int_equal(deltaic_sequence_save(r->b.session, slot, want, bytes, NULL), DELTAIC_OK);
  blob_copy(state, 0, bytes, got);
  assert_int_equal(deltaic_state_seal(got, bytes), DELTAIC_OK);
  assert_memory_equal(got, want, bytes);
  for (size_t at = 0; at < bytes; at += 1 + bytes / 999) // from anywhere
    if (at < 40 || at >= 48) assert_memory_equal(blob_span(state, at).bytes, want + at, 1);
  free(got);
  free(want);
}

static void a_state_in_blocks_has_the_bytes_of_the_slot(void **unused) {
  static const size_t positions[] = {1, 255, 256, 257, 512, 1000};
  struct rig *r = open_rig(1 << 24);
  for (size_t i = 0; i < sizeof positions / sizeof *positions; ++i) {
    read_to(r, 0, positions[i]);
    struct blob *state = save(r, 0);
    assert_int_equal(state->blocks->count, (positions[i] + BLOCK_POSITIONS - 1) / BLOCK_POSITIONS);
    has_the_bytes_of(r, 0, state);
    blob_drop(state);
  }
  close_rig(r);
}

static void a_state_shares_the_whole_blocks_of_the_one_before(void **unused) {
  struct rig *r = open_rig(1 << 24);
  const int64_t row = (int64_t)state_position_bytes(&r->server.layout);
  read_to(r, 0, 600);
  struct blob *first = save(r, 0);
  assert_int_equal(metric(r, METRIC_STATE_BYTES_SAVED), first->size);
  store_put(r->server.store, STORE_STATE, "first", first);
  const int64_t one = metric(r, METRIC_MEMORY_BYTES), before = metric(r, METRIC_STATE_BYTES_SAVED);
  read_to(r, 0, 1000);
  struct blob *second = save_after(r, 0, "first", 600), *other = save_after(r, 0, "is not there", 600);
  assert_int_equal(other->blocks->shared, 0);
  blob_drop(other);
  other = save_after(r, 0, "first", 599); // another one has the key
  assert_int_equal(other->blocks->shared, 0);
  blob_drop(other);
  assert_int_equal(second->blocks->shared, 2);
  for (size_t i = 0; i < 2; ++i) assert_ptr_equal(second->blocks->items[i], first->blocks->items[i]);
  assert_ptr_not_equal(second->blocks->items[2], first->blocks->items[2]);
  has_the_bytes_of(r, 0, second);
  const int64_t all = (int64_t)second->size, shared = 2 * BLOCK_POSITIONS * row;
  assert_int_equal(metric(r, METRIC_STATE_BYTES_SAVED) - before, all - shared + 2 * all);
  // The memory counts what they share once, whichever leaves first.
  store_put(r->server.store, STORE_STATE, "second", second);
  const int64_t both = metric(r, METRIC_MEMORY_BYTES);
  assert_in_range(both - one, all - shared, all - shared + 512);
  store_drop(r->server.store, STORE_STATE, "first");
  assert_in_range(metric(r, METRIC_MEMORY_BYTES), all, all + 1024);
  blob_drop(first);
  has_the_bytes_of(r, 0, second);
  store_drop(r->server.store, STORE_STATE, "second");
  assert_int_equal(metric(r, METRIC_MEMORY_BYTES), 0);
  blob_drop(second);
  close_rig(r);
}

static void states_that_share_blocks_leave_a_memory_that_is_full(void **unused) {
  struct rig *r = open_rig(1400 * 1024); // for one state of 1,000 tokens, which has 1.1 MiB
  read_to(r, 0, 900);
  struct blob *first = save(r, 0);
  store_put(r->server.store, STORE_STATE, "first", first);
  blob_drop(first);
  char key[STORE_KEY], before[STORE_KEY] = "first";
  for (size_t at = 920; at <= 1000; at += 20, memcpy(before, key, sizeof key)) {
    read_to(r, 0, at);
    struct blob *state = save_after(r, 0, before, at == 920 ? 900 : at - 20);
    assert_int_equal(state->blocks->shared, 900 / BLOCK_POSITIONS);
    snprintf(key, sizeof key, "state%zu", at);
    store_put(r->server.store, STORE_STATE, key, state);
    assert_true(store_in_memory(r->server.store, STORE_STATE, key));
    assert_in_range(metric(r, METRIC_MEMORY_BYTES), state->size, 1400 * 1024);
    blob_drop(state);
  }
  assert_false(store_in_memory(r->server.store, STORE_STATE, "first"));
  assert_true(metric(r, METRIC_MEMORY_EVICTED) > 0);
  close_rig(r);
}

static void a_round_without_time_moves_one_piece(void **unused) {
  struct rig *r = open_rig(1 << 24); // --stall 0: no time
  read_to(r, 0, 1000);
  move_out(&r->b, 0, NULL, 0, ended);
  ends = 0;
  for (int round = 1; !ends; ++round) {
    assert_int_equal(slot_free(&r->b, NULL), 1); // the other one
    moves_run(&r->b);
    assert_int_equal(metric(r, METRIC_STATE_PIECES), round);
    assert_int_equal(metric(r, METRIC_STATE_ROUNDS), round);
  }
  const int64_t pieces = metric(r, METRIC_STATE_PIECES);
  assert_true(pieces > 16); // four caches in four blocks
  assert_int_equal(slot_free(&r->b, NULL), 0);
  has_the_bytes_of(r, 0, came);
  // Two states take turns, and a slot that is being loaded can do nothing else.
  struct blob *state = came;
  came = NULL;
  read_to(r, 1, 1); // something to overwrite
  move_in(&r->b, 1, state, ended);
  move_out(&r->b, 0, NULL, 0, ended);
  assert_int_equal(slot_free(&r->b, NULL), r->b.slots);
  for (int64_t round = 1; round <= 2 * pieces; ++round) {
    assert_int_equal(ends, round < 2 * pieces ? 1 : 2);
    const deltaic_piece piece = {.sequence = 1, .tokens = text, .count = 1};
    if (round == 2 * pieces - 1)
      assert_int_equal(deltaic_session_eval_batch(r->b.session, &piece, 1), DELTAIC_BAD_STATE);
    moves_run(&r->b);
  }
  assert_int_equal(ends, 3);
  assert_int_equal(r->b.moving, 0);
  has_the_bytes_of(r, 1, state);
  blob_drop(state);
  blob_drop(came);
  came = NULL;
  close_rig(r);
}

static void saves_move_one_after_the_other(void **unused) {
  enum { SAVES = 6 };
  struct rig *r = open_rig_of(SAVES + 1, 1 << 24);
  for (uint32_t i = 0; i <= SAVES; ++i) read_to(r, i, 600);
  struct blob *state = save(r, 0);
  for (uint32_t i = SAVES; i--;) move_out(&r->b, i, NULL, 0, ended);
  ends = 0;
  for (int piece = 0; ends <= SAVES; ++piece) {
    if (piece == 5) move_in(&r->b, SAVES, state, ended);
    size_t bytes = 0;
    for (uint32_t i = 0; i < SAVES; ++i) bytes += r->b.moves[i].state ? r->b.moves[i].state->size : 0;
    assert_true(bytes <= state->size); // one of them has memory
    moves_run(&r->b);
  }
  static const uint32_t want[] = {5, 6, 4, 3, 2, 1, 0}; // the load takes turns with the first two saves
  assert_memory_equal(ended_slots, want, sizeof want);
  blob_drop(state);
  blob_drop(came);
  came = NULL;
  close_rig(r);
}

static void a_move_that_is_given_up_leaves_nothing(void **unused) {
  struct rig *r = open_rig(1 << 24);
  read_to(r, 0, 600);
  struct blob *state = save(r, 0);
  ends = 0;
  for (int kind = 0; kind < 2; ++kind) { // by its text's end, and by the server's
    move_out(&r->b, 0, NULL, 0, ended);
    move_in(&r->b, 1, state, ended);
    for (int i = 0; i < 5; ++i) moves_run(&r->b);
    if (kind) {
      moves_finish(&r->b, 0);
    } else {
      move_drop(&r->b, 0);
      move_drop(&r->b, 1);
    }
    assert_int_equal(ends, 2 * kind);
    assert_null(came);
    assert_int_equal(r->b.moving, 0);
    has_the_bytes_of(r, 0, state);
    assert_int_equal(deltaic_sequence_reset(r->b.session, 1), DELTAIC_OK);
    read_to(r, 1, 600);
    has_the_bytes_of(r, 1, state); // as of a new slot
  }
  // One that nobody waits for any more ends before others, and without moving more.
  ends = 0;
  move_out(&r->b, 0, NULL, 0, ended);
  move_out(&r->b, 1, NULL, 0, ended);
  moves_run(&r->b);
  const int64_t pieces = metric(r, METRIC_STATE_PIECES);
  move_give_up(&r->b, 1);
  moves_run(&r->b);
  assert_int_equal(ends, 1);
  assert_int_equal(ended_slots[0], 1);
  assert_null(came);
  assert_int_equal(metric(r, METRIC_STATE_PIECES), pieces);
  move_drop(&r->b, 0);
  assert_int_equal(atomic_load(&state->holders), 1);
  blob_drop(state);
  close_rig(r);
}

int main(void) {
  const deltaic_context_options options = {.size = sizeof options, .cache_dir = ""};
  const deltaic_device_options cpu = {.size = sizeof cpu, .index = DELTAIC_DEVICE_INDEX_CPU, .threads = 1};
  if (deltaic_context_create(&options, &context) || deltaic_device_open(context, &cpu, &device)) return 1;
  uint32_t x = 1;
  for (int i = 0; i < TEXT; ++i) text[i] = 3 + (int32_t)((x = x * 1664525u + 1013904223u) >> 16) % 256;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_state_in_blocks_has_the_bytes_of_the_slot),
      cmocka_unit_test(a_state_shares_the_whole_blocks_of_the_one_before),
      cmocka_unit_test(states_that_share_blocks_leave_a_memory_that_is_full),
      cmocka_unit_test(a_round_without_time_moves_one_piece),
      cmocka_unit_test(saves_move_one_after_the_other),
      cmocka_unit_test(a_move_that_is_given_up_leaves_nothing),
  };
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  deltaic_device_close(device);
  deltaic_context_free(context);
  return failed;
}
