// Parts of `deltaic serve` by themselves: the store in memory, turns as bytes, keys.
#include "serve_keys.h"
#include "serve_store.h"
#include "serve_turn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// ---------------------------------------------------------------- the store

static struct blob *made(size_t size, int value) {
  struct blob *blob = blob_create(size);
  assert_non_null(blob);
  memset(blob->bytes, value, size);
  return blob;
}

static void put(struct store *store, const char *key, size_t size, int value) {
  struct blob *blob = made(size, value);
  store_put(store, STORE_STATE, key, blob);
  blob_drop(blob);
}

// The value that the key has, or -1.
static int value_of(struct store *store, const char *key) {
  struct blob *blob;
  const enum store_found found = store_get(store, STORE_STATE, key, &blob);
  assert_int_equal(found == STORE_FOUND, blob != NULL);
  const int value = blob ? blob->bytes[0] : -1;
  blob_drop(blob);
  return value;
}

static void the_least_recently_used_leave_first(void **state) {
  static struct metrics metrics;
  const struct store_options options = {.bytes = {0, 3600}};
  struct store *store = store_open(&options, &metrics);
  put(store, "a", 1000, 1);
  put(store, "b", 1000, 2);
  put(store, "c", 1000, 3);
  assert_int_equal(value_of(store, "a"), 1);
  assert_true(store_in_memory(store, STORE_STATE, "b"));
  put(store, "d", 1000, 4); // b is the oldest: asking whether it is there is no use
  assert_int_equal(value_of(store, "b"), -1);
  assert_int_equal(value_of(store, "a"), 1);
  put(store, "a", 500, 5); // replaced, not added
  assert_int_equal(value_of(store, "c"), 3);
  assert_int_equal(value_of(store, "a"), 5);
  put(store, "large", 4000, 6); // larger than all of it: nothing leaves for it
  assert_int_equal(value_of(store, "large"), -1);
  assert_int_equal(value_of(store, "d"), 4);
  store_drop(store, STORE_STATE, "d");
  assert_int_equal(value_of(store, "d"), -1);
  assert_int_equal(metrics_get(&metrics, METRIC_MEMORY_EVICTED), 1);
  assert_int_equal(metrics_get(&metrics, METRIC_MEMORY_STATES), 2);
  store_close(store);
  assert_int_equal(metrics_get(&metrics, METRIC_MEMORY_BYTES), 0);
}

struct behind {
  struct blob *blob;
  bool down;
  int puts, gets, drops, closes;
};

static void behind_put(void *self, enum store_kind kind, const char *key, const char *after, struct blob *blob) {
  struct behind *b = self;
  ++b->puts;
  blob_drop(b->blob);
  b->blob = blob_hold(blob);
}

static enum store_found behind_get(void *self, enum store_kind kind, const char *key, struct blob **blob) {
  struct behind *b = self;
  ++b->gets;
  if (b->down) return STORE_DOWN;
  if (!b->blob) return STORE_ABSENT;
  *blob = blob_hold(b->blob);
  return STORE_FOUND;
}

static void behind_drop(void *self, enum store_kind kind, const char *key) { ++((struct behind *)self)->drops; }
static void behind_close(void *self) { ++((struct behind *)self)->closes; }

static void what_left_the_memory_comes_from_behind(void **state) {
  static struct metrics metrics;
  const struct store_options options = {.bytes = {0, 2500}};
  struct behind b = {0};
  struct store *store = store_open(&options, &metrics);
  const struct store_behind behind = {
      .self = &b, .put = behind_put, .get = behind_get, .drop = behind_drop, .close = behind_close};
  store_set_behind(store, behind);
  assert_int_equal(value_of(store, "a"), -1);
  put(store, "a", 2000, 7);
  assert_int_equal(value_of(store, "a"), 7);
  assert_int_equal(b.gets, 1); // memory had it
  put(store, "b", 2000, 8);
  assert_int_equal(value_of(store, "a"), 8); // the fake has one value
  assert_int_equal(b.gets, 2);
  assert_true(store_in_memory(store, STORE_STATE, "a")); // and is kept again
  b.down = true;
  struct blob *blob;
  assert_int_equal(store_get(store, STORE_STATE, "b", &blob), STORE_DOWN);
  assert_null(blob);
  assert_int_equal(value_of(store, "a"), 8); // memory does not need it
  store_drop(store, STORE_STATE, "a");
  store_close(store);
  assert_int_equal(b.puts, 2);
  assert_int_equal(b.drops, 1);
  assert_int_equal(b.closes, 1);
  blob_drop(b.blob);
}

static double behind_seconds(void *self, uint64_t tokens) { return 1e-3 * (double)tokens + 0.5; }

static void a_short_history_is_not_fetched_where_computing_is_faster(void **state) {
  static struct metrics metrics;
  const struct store_options options = {.bytes = {0, 2500}};
  struct behind b = {.blob = blob_create(1)};
  struct store *store = store_open(&options, &metrics);
  const struct store_behind behind = {
      .self = &b, .put = behind_put, .get = behind_get, .drop = behind_drop, .seconds = behind_seconds};
  store_set_behind(store, behind);
  metrics_set(&metrics, METRIC_PROMPT_RATE, 500); // twice as slow as the store, but for its half second
  assert_null(store_get_state(store, "short", 400));
  assert_int_equal(b.gets, 0);
  assert_int_equal(metrics_get(&metrics, METRIC_STATES_SKIPPED), 1);
  struct blob *blob = store_get_state(store, "long", 600);
  assert_non_null(blob);
  assert_int_equal(b.gets, 1);
  blob_drop(blob);
  blob = store_get_state(store, "long", 10); // memory has it
  assert_non_null(blob);
  assert_int_equal(b.gets, 1);
  blob_drop(blob);
  blob_drop(b.blob);
  b.blob = NULL;
  assert_null(store_get_state(store, "gone", 600));
  assert_int_equal(metrics_get(&metrics, METRIC_STATES_COMPUTED), 1);
  store_close(store);
}

static void keys_of_the_store_are_plain(void **state) {
  char longest[STORE_KEY + 1] = {0};
  memset(longest, 'a', STORE_KEY - 1);
  assert_true(store_key_valid("resp_0-Az"));
  assert_true(store_key_valid(longest));
  longest[STORE_KEY - 1] = 'a';
  assert_false(store_key_valid(longest));
  assert_false(store_key_valid(""));
  assert_false(store_key_valid("../a"));
  assert_false(store_key_valid("a b"));
}

// ---------------------------------------------------------------- turns

static void turns_survive_as_bytes(void **state) {
  const int32_t tokens[] = {1, 2, 3}, pending[] = {4};
  const uint32_t spans[] = {TURN_SPAN(2, false), TURN_SPAN(3, true)};
  const struct turn turn = {tokens, 3, pending, 1, "resp_1", "[]", 2, "chat-1", spans, 2, "qwen3.5"};
  struct turn back;
  struct blob *blob = turn_pack(&turn);
  assert_true(turn_unpack(blob, 5, &back));
  assert_int_equal(back.count, 3);
  assert_memory_equal(back.tokens, tokens, sizeof tokens);
  assert_int_equal(back.pending_count, 1);
  assert_int_equal(back.pending[0], 4);
  assert_int_equal(back.messages_bytes, 2);
  assert_memory_equal(back.messages, "[]", 2);
  assert_string_equal(back.state, "resp_1");
  assert_string_equal(back.alias, "chat-1");
  assert_string_equal(back.template, "qwen3.5");
  enum { HEAD = 20 + 2 * STORE_KEY + 40 };
  blob->bytes[HEAD - 1] = 1; // behind the template
  assert_false(turn_unpack(blob, 5, &back));
  blob->bytes[HEAD - 1] = 0;
  blob->bytes[20 + STORE_KEY] = '.';
  assert_false(turn_unpack(blob, 5, &back));
  blob->bytes[20 + STORE_KEY] = 'c';
  blob->bytes[20] = '/'; // of the key
  assert_false(turn_unpack(blob, 5, &back));
  blob->bytes[20] = 'r';
  blob->bytes[20 + 30] = 1; // behind the key
  assert_false(turn_unpack(blob, 5, &back));
  blob->bytes[20 + 30] = 0;
  assert_int_equal(back.span_count, 2);
  assert_memory_equal(back.spans, spans, sizeof spans);
  blob->bytes[HEAD + 4 * 4] ^= 4; // the first span ends behind the second
  struct turn kept = {0};
  assert_false(turn_unpack(blob, 5, &kept));
  assert_null(kept.tokens); // nothing leads into bytes that are dropped
  blob->bytes[HEAD + 4 * 4] ^= 4;
  for (size_t i = 0; i < 20; ++i) { // every word of the head is checked
    blob->bytes[i] ^= 0x80;
    assert_false(turn_unpack(blob, 5, &back));
    blob->bytes[i] ^= 0x80;
  }
  for (size_t i = 0; i < 4; ++i) { // tokens, and the one that is pending
    blob->bytes[HEAD + 4 * i + 3] ^= 0x80;
    assert_false(turn_unpack(blob, 5, &back));
    blob->bytes[HEAD + 4 * i + 3] ^= 0x80;
  }
  assert_false(turn_unpack(blob, 4, &back)); // of another vocabulary
  --blob->size;
  assert_false(turn_unpack(blob, 5, &back));
  blob->size = 8;
  assert_false(turn_unpack(blob, 5, &back));
  blob_drop(blob);
}

// ---------------------------------------------------------------- keys

static void keys_are_whole_lines(void **state) {
  char path[] = "deltaic_keys_XXXXXX";
  const int file = mkstemp(path);
  static const char text[] = "# no key\n\none\r\ntwo words\n";
  struct keys keys;
  assert_int_equal(write(file, text, strlen(text)), strlen(text));
  close(file);
  assert_int_equal(keys_read(path, &keys), 0);
  unlink(path);
  assert_int_equal(keys.count, 2);
  assert_int_equal(keys_find(&keys, "Bearer one"), 1);
  assert_int_equal(keys_find(&keys, "bearer two words"), 2);
  assert_int_equal(keys_find(&keys, "Bearer two"), 0);
  assert_int_equal(keys_find(&keys, "Bearer one "), 0);
  assert_int_equal(keys_find(&keys, "Bearer "), 0);
  assert_int_equal(keys_find(&keys, "one"), 0);
  assert_int_equal(keys_find(&keys, NULL), 0);
  keys_free(&keys);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_least_recently_used_leave_first),
      cmocka_unit_test(what_left_the_memory_comes_from_behind),
      cmocka_unit_test(keys_of_the_store_are_plain),
      cmocka_unit_test(a_short_history_is_not_fetched_where_computing_is_faster),
      cmocka_unit_test(turns_survive_as_bytes),
      cmocka_unit_test(keys_are_whole_lines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
