// test_store_parts: parts of the store by themselves: addresses, stored forms of states, the time of an operation.
#include "store_tools.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void addresses_are_read_and_wrong_ones_named(void **state) {
  struct store_address a;
  assert_null(store_address_parse("redis://localhost", &a));
  assert_string_equal(a.port, "6379");
  assert_false(a.tls || a.db || a.password[0]);
  assert_null(store_address_parse("rediss://me:a%40b%2fc@[::1]:7000/12", &a));
  assert_string_equal(a.host, "::1");
  assert_string_equal(a.port, "7000");
  assert_string_equal(a.user, "me");
  assert_string_equal(a.password, "a@b/c");
  assert_true(a.tls && a.db == 12);
  static const char *const wrong[] = {"localhost:6379",    "http://localhost", "redis://",          "redis://:x@",
                                      "redis://user@host", "redis://h:0",      "redis://h:65536",   "redis://h:12x",
                                      "redis://h/x",       "redis://[::1",     "redis://h?db=1",    "redis://:%0@h",
                                      "redis://:%00@h",    "redis://[::1]x:1", "redis://h/99999999"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    if (!store_address_parse(wrong[i], &a)) fail_msg("%s is taken", wrong[i]);
}

// Packs a state with a block up to `cut`, and puts it together; NULL: refused. damage: the byte to change, or 0.
static struct blob *there_and_back(const struct replica *r, const struct pack_state *s, size_t damage) {
  struct pack_blocks blocks = {.count = 0}, read;
  struct pack_bytes values[3] = {{0}};
  uint64_t cuts[] = {0, 40, s->position}, position;
  size_t at = damage;
  if (r->layout.grows)
    for (size_t i = 0; i < 2; i++) {
      struct pack_block *b = &blocks.items[blocks.count++];
      *b = (struct pack_block){.first = cuts[i], .end = cuts[i + 1]};
      snprintf(b->id, sizeof b->id, "block%zu", i);
      values[i + 1] = pack_grown(&r->layout, s, cuts[i], cuts[i + 1]);
    }
  values[0] = pack_fixed(&r->layout, s, &blocks);
  for (size_t i = 0; damage && i < 3; i++) { // the values one behind the other
    if (at < values[i].bytes) values[i].data[at] ^= 4;
    at = at < values[i].bytes ? SIZE_MAX : at == SIZE_MAX ? at : at - values[i].bytes;
  }
  struct blob *state = NULL;
  bool fine =
      pack_read_blocks(&r->layout, values[0].data, values[0].bytes, &read, &position) && read.count == blocks.count;
  if (fine) state = pack_open(&r->layout, values[0].data, values[0].bytes);
  fine = state && state->size == s->state->size;
  for (size_t i = 0; fine && i < blocks.count; i++) fine = pack_add(state, &read.items[i], &values[i + 1]);
  for (int i = 0; i < 3; i++) free(values[i].data);
  if (fine) return state;
  blob_drop(state);
  return NULL;
}

static void stored_forms_give_the_state_back(void **state) {
  for (int k = 0; k < KINDS; k++) {
    struct replica r = open_replica(kinds[k]);
    struct blob *blob = read_to(&r, 0, 100);
    float exact[512], rounded[512];
    const uint32_t bits[] = {32, 16, 8};
    const double most[] = {0, 2e-3, 0.2}; // relative RMS of logits after 20 more tokens
    for (int i = 0; i < 3; i++) {
      const struct pack_state s = {blob, 100, bits[i]};
      struct blob *in_blocks = there_and_back(&r, &s, 0);
      assert_non_null(in_blocks);
      char *back = flat_state(in_blocks);
      blob_drop(in_blocks);
      if (!i) assert_memory_equal(back, blob->bytes, blob->size);
      assert_int_equal(deltaic_session_load(r.session, back, blob->size), DELTAIC_OK);
      free(back);
      assert_int_equal(deltaic_session_eval(r.session, text + 100, 20, DELTAIC_LOGITS_LAST, i ? rounded : exact), 0);
      double error = 0, size = 0;
      for (int v = 0; i && v < r.info.vocabulary; v++)
        error += pow((double)rounded[v] - exact[v], 2), size += pow(exact[v], 2);
      if (i && !(error > 0 && sqrt(error / size) < most[i]))
        fail_msg("%s, %u bits: error %g", kinds[k], bits[i], sqrt(error / size));
    }
    blob_drop(blob);
    close_replica(&r);
  }
}

static void damaged_and_foreign_values_are_refused(void **state) {
  struct replica r = open_replica(kinds[GROWS]), other = open_replica(kinds[0]);
  struct blob *blob = read_to(&r, 0, 100);
  const struct pack_state s = {blob, 100, 16};
  for (size_t at = 1; at < blob->size / 2; at += at < 300 ? 1 : 997) {
    struct blob *back = there_and_back(&r, &s, at);
    if (back) fail_msg("byte %zu may change", at);
  }
  const struct pack_blocks none = {.count = 0};
  struct pack_bytes value = pack_fixed(&r.layout, &s, &none);
  r.layout.fingerprint ^= 1;
  assert_null(pack_open(&r.layout, value.data, value.bytes));
  r.layout.fingerprint ^= 1;
  for (size_t cut = 0; cut < value.bytes; cut += 1 + cut / 7) {
    char *less = malloc(cut + 1); // its own block, so that the sanitizer sees an access past the end
    memcpy(less, value.data, cut);
    assert_null(pack_open(&r.layout, less, cut));
    free(less);
  }
  assert_null(pack_fixed(&other.layout, &s, &none).data);
  free(value.data);
  struct blob *short_one = read_to(&other, 0, 100); // as large behind any number of tokens
  struct pack_state far = {short_one, INT32_MAX, 16};
  value = pack_fixed(&other.layout, &far, &none);
  assert_non_null(value.data);
  free(value.data);
  ++far.position;
  assert_null(pack_fixed(&other.layout, &far, &none).data);
  blob_drop(short_one);
  blob_drop(blob);
  close_replica(&other);
  close_replica(&r);
}

// ---------------------------------------------------------------- the time for the store

// Whether the store answers a command that it answers after so long.
static bool answers_after(struct wire *wire, const char *seconds) {
  const struct wire_arg wait[] = {wire_text("BLPOP"), wire_text("no list"), wire_text(seconds)};
  redisReply *reply = wire_command(wire, wait, 3);
  if (reply) freeReplyObject(reply);
  return reply;
}

static void only_waiting_takes_of_the_time_for_the_store(void **state) {
  start(port, NULL);
  struct wire_time time = wire_time_of(3000);
  struct wire *wire = open_wire(port, false, &time);
  assert_non_null(wire);
  usleep(3500000); // this process computes, such as the checksums of a large state
  assert_true(answers_after(wire, "1"));
  time = wire_time_of(3000);
  assert_true(answers_after(wire, "1"));
  assert_false(answers_after(wire, "4")); // all commands share the time
  assert_non_null(strstr(wire_error(wire), "takes longer than --store-timeout allows"));
  wire_close(wire);
  end(SIGKILL);
}

static void a_store_that_falls_silent_is_not_waited_for_by_the_size_of_what_it_took(void **state) {
  enum { BYTES = 64 << 20 }; // 8 s of the least rate
  start(port, NULL);
  struct wire_time time = wire_time_of(600);
  struct wire *wire = open_wire(port, false, &time);
  assert_non_null(wire);
  char *data = calloc(1, BYTES);
  const struct wire_arg set[] = {wire_text("SET"), wire_text("large"), {data, BYTES}};
  redisReply *reply = wire_command(wire, set, 3);
  assert_non_null(reply);
  freeReplyObject(reply);
  free(data);
  const uint64_t begin = platform_clock_ns();
  assert_false(answers_after(wire, "20"));
  assert_true(since(begin) < 5);
  wire_close(wire);
  end(SIGKILL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(addresses_are_read_and_wrong_ones_named),
      cmocka_unit_test(stored_forms_give_the_state_back),
      cmocka_unit_test(damaged_and_foreign_values_are_refused),
      cmocka_unit_test_teardown(only_waiting_takes_of_the_time_for_the_store, stop_server),
      cmocka_unit_test_teardown(a_store_that_falls_silent_is_not_waited_for_by_the_size_of_what_it_took, stop_server),
  };
  if (!store_tools_open("test_store_parts")) return 1;
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  store_tools_close();
  return failed;
}
