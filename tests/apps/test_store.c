// test_store: states in a Redis of the test's own, which is killed, stopped and restarted.
#include "store_redis.h"
#include "store_tools.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TLS_PORT = 1 };

static struct metrics metrics;

static struct store_behind connect_with(const struct replica *r, struct store_redis_options o) {
  static char url[128];
  struct store_behind behind;
  snprintf(url, sizeof url, "redis://:secret@127.0.0.1:%d/3", port);
  if (!o.url) o.url = url;
  if (!o.bits) o.bits = 32;
  if (!o.timeout_ms) o.timeout_ms = 5000;
  if (!o.queue_bytes) o.queue_bytes = 64 << 20;
  o.fingerprint = r->info.fingerprint;
  assert_null(store_redis_open(&o, r->session, &metrics, &behind));
  return behind;
}

static struct store_behind connect_to(const struct replica *r) {
  return connect_with(r, (struct store_redis_options){.seconds = 60, .bytes = 64 << 20});
}

static void put(struct store_behind *b, const char *key, const char *after, struct blob *blob) {
  b->put(b->self, STORE_STATE, key, after, blob);
  b->settle(b->self, STORE_STATE, 5000);
}

static void must_have(struct store_behind *b, enum store_kind kind, const char *key, const struct blob *blob) {
  struct blob *got = NULL;
  assert_int_equal(b->get(b->self, kind, key, &got), STORE_FOUND);
  assert_int_equal(got->size, blob->size);
  char *flat = kind == STORE_STATE ? flat_state(got) : NULL;
  assert_memory_equal(flat ? flat : (char *)got->bytes, blob->bytes, blob->size);
  free(flat);
  blob_drop(got);
}

static void must_lack(struct store_behind *b, enum store_kind kind, const char *key) {
  struct blob *got = NULL;
  assert_int_equal(b->get(b->self, kind, key, &got), STORE_ABSENT);
}

// ---------------------------------------------------------------- what it has, and what it loses

static void another_process_goes_on_bit_for_bit(void **state) {
  start(port, NULL);
  for (int k = 0; k < KINDS; k++) {
    struct replica a = open_replica(kinds[k]), b = open_replica(kinds[k]);
    struct store_behind one = connect_to(&a), two = connect_to(&b);
    struct blob *blob = read_to(&a, 0, 100), *turn = blob_of("what was said");
    put(&one, "a-key", NULL, blob);
    one.put(one.self, STORE_TURN, "a-key", NULL, turn);
    one.settle(one.self, STORE_TURN, 5000);
    must_have(&two, STORE_STATE, "a-key", blob);
    must_have(&two, STORE_TURN, "a-key", turn);
    must_lack(&two, STORE_STATE, "another");
    assert_true(two.seconds(two.self, 100) > 0);
    two.drop(two.self, STORE_STATE, "a-key");
    two.settle(two.self, STORE_STATE, 5000);
    must_lack(&one, STORE_STATE, "a-key");
    float la[512], lb[512];
    assert_int_equal(deltaic_session_load(b.session, blob->bytes, blob->size), DELTAIC_OK);
    assert_int_equal(deltaic_session_eval(a.session, text + 100, 9, DELTAIC_LOGITS_LAST, la), DELTAIC_OK);
    assert_int_equal(deltaic_session_eval(b.session, text + 100, 9, DELTAIC_LOGITS_LAST, lb), DELTAIC_OK);
    assert_memory_equal(la, lb, sizeof *la * (size_t)a.info.vocabulary);
    blob_drop(turn);
    blob_drop(blob);
    one.close(one.self);
    two.close(two.self);
    close_replica(&b);
    close_replica(&a);
  }
  end(SIGKILL);
}

static void a_longer_text_and_its_forks_share_what_caches_have(void **state) {
  start(port, NULL);
  struct replica r = open_replica(kinds[GROWS]);
  struct store_behind b = connect_to(&r);
  struct blob *whole = read_to(&r, 0, 400);
  put(&b, "first", NULL, whole);
  const int64_t before = metrics_get(&metrics, METRIC_STORE_PUT_BYTES);
  struct blob *longer = read_to(&r, 400, 410), *fork;
  put(&b, "longer", "first", longer);
  const int64_t added = metrics_get(&metrics, METRIC_STORE_PUT_BYTES) - before;
  const int64_t row = (int64_t)state_position_bytes(&r.layout), fixed = (int64_t)whole->size - 400 * row;
  assert_in_range(added, fixed + 10 * row, fixed + 10 * row + 2048);
  assert_int_equal(deltaic_session_load(r.session, whole->bytes, whole->size), DELTAIC_OK);
  fork = read_to(&r, 500, 530);
  put(&b, "fork", "first", fork);
  must_have(&b, STORE_STATE, "first", whole);
  must_have(&b, STORE_STATE, "longer", longer);
  must_have(&b, STORE_STATE, "fork", fork);
  // Behind another text nothing is shared, whatever `after` says.
  assert_int_equal(deltaic_session_reset(r.session), DELTAIC_OK);
  struct blob *other = read_to(&r, 100, 550);
  put(&b, "other", "first", other);
  must_have(&b, STORE_STATE, "other", other);
  // Many turns: more blocks than a list has room for.
  assert_int_equal(deltaic_session_reset(r.session), DELTAIC_OK);
  char key[16], last[16] = "";
  for (size_t i = 0; i < PACK_BLOCKS + 6; i++) {
    struct blob *turn = read_to(&r, i, i + 1);
    snprintf(key, sizeof key, "turn%zu", i);
    put(&b, key, last, turn);
    if (i + 8 > PACK_BLOCKS) must_have(&b, STORE_STATE, key, turn);
    memcpy(last, key, sizeof last);
    blob_drop(turn);
  }
  blob_drop(other);
  blob_drop(fork);
  blob_drop(longer);
  blob_drop(whole);
  b.close(b.self);
  close_replica(&r);
  end(SIGKILL);
}

static void a_store_that_is_down_slows_and_never_stops(void **state) {
  struct replica r = open_replica(kinds[0]);
  struct blob *blob = read_to(&r, 0, 100), *got = NULL;
  uint64_t begin = platform_clock_ns();
  struct store_behind b = connect_with(&r, (struct store_redis_options){.timeout_ms = 400}); // nothing listens
  assert_int_equal(metrics_get(&metrics, METRIC_STORE_UP), 0);
  for (int i = 0; i < 50; i++) assert_int_equal(b.get(b.self, STORE_STATE, "key", &got), STORE_DOWN);
  b.put(b.self, STORE_STATE, "key", NULL, blob);
  b.settle(b.self, STORE_STATE, 5000); // does not wait for what is down
  assert_true(since(begin) < 2);
  usleep(700000); // it is tried in vain
  start(port, NULL);
  for (int i = 0; i < 200 && metrics_get(&metrics, METRIC_STORE_WAITING); i++) usleep(50000);
  b.settle(b.self, STORE_STATE, 5000);
  must_have(&b, STORE_STATE, "key", blob); // what waited is written
  assert_int_equal(metrics_get(&metrics, METRIC_STORE_UP), 1);

  end(SIGKILL); // restarted at once, the first command meets a connection that is closed
  start(port, NULL);
  must_lack(&b, STORE_STATE, "key");
  put(&b, "key", NULL, blob);
  must_have(&b, STORE_STATE, "key", blob);

  kill(server, SIGSTOP); // it takes bytes, and does not answer
  begin = platform_clock_ns();
  for (int i = 0; i < 20; i++) assert_int_equal(b.get(b.self, STORE_STATE, "key", &got), STORE_DOWN);
  assert_true(since(begin) < 3);
  kill(server, SIGCONT);
  struct blob *again = NULL;
  for (int i = 0; i < 200 && b.get(b.self, STORE_STATE, "key", &again) == STORE_DOWN; i++) usleep(50000);
  assert_non_null(again);
  blob_drop(again);
  blob_drop(blob);
  b.close(b.self);
  close_replica(&r);
  end(SIGKILL);
}

static void what_waits_is_bounded_and_what_is_old_leaves(void **state) {
  struct replica r = open_replica(kinds[0]);
  struct blob *blob = read_to(&r, 0, 100);
  char key[16];
  struct store_behind b = connect_with(
      &r, (struct store_redis_options){.seconds = 1, .bytes = 3 * blob->size + 2000, .queue_bytes = 2 * blob->size});
  const int64_t dropped = metrics_get(&metrics, METRIC_STORE_DROPPED);
  for (int i = 0; i < 9; i++) snprintf(key, sizeof key, "key%d", i), b.put(b.self, STORE_STATE, key, NULL, blob);
  assert_in_range(metrics_get(&metrics, METRIC_STORE_DROPPED) - dropped, 7, 9);
  assert_in_range(metrics_get(&metrics, METRIC_STORE_WAITING), 0, 2 * ((int64_t)blob->size + 1000)); // with jobs
  start(port, NULL);
  usleep(600000);
  for (int i = 0; i < 5; i++) {
    snprintf(key, sizeof key, "key%d", i);
    put(&b, key, NULL, blob);
    if (i == 2) must_have(&b, STORE_STATE, "key0", blob); // a use
  }
  must_have(&b, STORE_STATE, "key0", blob);
  must_have(&b, STORE_STATE, "key3", blob);
  must_have(&b, STORE_STATE, "key4", blob);
  must_lack(&b, STORE_STATE, "key1");
  must_lack(&b, STORE_STATE, "key2");
  sleep(2);
  must_lack(&b, STORE_STATE, "key4");
  sleep(1); // and nothing at all is left
  char command[128];
  snprintf(command, sizeof command, "redis-cli -p %d -n 3 -a secret --no-auth-warning dbsize | grep -qx 0", port);
  assert_int_equal(system(command), 0);
  blob_drop(blob);
  b.close(b.self);
  close_replica(&r);
  end(SIGKILL);
}

static void a_state_larger_than_the_room_to_wait_is_written(void **state) {
  struct replica r = open_replica(kinds[0]);
  struct blob *older = read_to(&r, 0, 50), *blob = read_to(&r, 50, 100), *turn = blob_of("a turn");
  struct store_behind b = connect_with(&r, (struct store_redis_options){.queue_bytes = blob->size / 2});
  b.put(b.self, STORE_STATE, "older", NULL, older); // the store is down
  b.put(b.self, STORE_STATE, "key", NULL, blob);
  b.drop(b.self, STORE_STATE, "other"); // behind it, and small
  b.put(b.self, STORE_TURN, "key", NULL, turn);
  start(port, NULL);
  for (int i = 0; i < 200 && metrics_get(&metrics, METRIC_STORE_WAITING); i++) usleep(50000);
  must_have(&b, STORE_STATE, "key", blob);
  must_have(&b, STORE_TURN, "key", turn);
  must_lack(&b, STORE_STATE, "older");
  blob_drop(turn);
  blob_drop(blob);
  blob_drop(older);
  b.close(b.self);
  close_replica(&r);
  end(SIGKILL);
}

// The store ends a connection for which it has to keep more answers than two blocks.
static void blocks_are_not_asked_for_all_at_once(void **state) {
  enum { TURNS = 12, EACH = 50 }; // 50 KiB a block
  const char *const few[] = {"--client-output-buffer-limit", "normal", "200kb", "0", "0", NULL};
  start(port, few);
  struct replica r = open_replica(kinds[GROWS]);
  struct store_behind b = connect_to(&r);
  char key[16], last[16] = "";
  for (size_t i = 0; i < TURNS; i++) {
    struct blob *turn = read_to(&r, i * EACH, (i + 1) * EACH);
    snprintf(key, sizeof key, "turn%zu", i);
    put(&b, key, last, turn);
    memcpy(last, key, sizeof last);
    if (i + 1 == TURNS) must_have(&b, STORE_STATE, key, turn);
    blob_drop(turn);
  }
  b.close(b.self);
  close_replica(&r);
  end(SIGKILL);
}

static void a_value_that_the_store_finds_too_large_does_not_stop_others(void **state) {
  const char *const small[] = {"--proto-max-bulk-len", "1mb", NULL};
  start(port, small);
  struct replica r = open_replica(kinds[0]);
  struct store_behind b = connect_to(&r);
  struct blob *large = blob_create(4 << 20), *turn = blob_of("a turn");
  memset(large->bytes, 1, large->size);
  const int64_t dropped = metrics_get(&metrics, METRIC_STORE_DROPPED);
  b.put(b.self, STORE_TURN, "large", NULL, large);
  b.put(b.self, STORE_TURN, "small", NULL, turn);
  for (int i = 0; i < 400 && metrics_get(&metrics, METRIC_STORE_WAITING); i++) usleep(50000);
  assert_int_equal(metrics_get(&metrics, METRIC_STORE_DROPPED), dropped + 1);
  must_have(&b, STORE_TURN, "small", turn);
  blob_drop(turn);
  blob_drop(large);
  b.close(b.self);
  close_replica(&r);
  end(SIGKILL);
}

static void another_models_values_are_refused(void **state) {
  start(port, NULL);
  struct replica r = open_replica(kinds[0]);
  struct store_behind b = connect_to(&r);
  struct blob *blob = read_to(&r, 0, 100), *turn = blob_of("a turn");
  put(&b, "key", NULL, blob);
  b.put(b.self, STORE_TURN, "key", NULL, turn);
  b.settle(b.self, STORE_TURN, 5000);
  struct replica other = r;
  other.info.fingerprint ^= 2;
  struct store_behind foreign = connect_to(&other);
  must_lack(&foreign, STORE_STATE, "key"); // keys of models never meet
  char command[512];
  for (const char *letter = "st"; *letter; letter++) {
    snprintf(
        command, sizeof command,
        "redis-cli -p %d -n 3 -a secret --no-auth-warning copy 'deltaic:{%016llx}:%c:key' 'deltaic:{%016llx}:%c:key'"
        " | grep -q 1",
        port, (unsigned long long)r.info.fingerprint, *letter, (unsigned long long)other.info.fingerprint, *letter);
    assert_int_equal(system(command), 0);
  }
  const int64_t refused = metrics_get(&metrics, METRIC_STORE_REFUSED);
  must_lack(&foreign, STORE_STATE, "key");
  must_lack(&foreign, STORE_TURN, "key");
  assert_int_equal(metrics_get(&metrics, METRIC_STORE_REFUSED), refused + 2);
  blob_drop(turn);
  blob_drop(blob);
  foreign.close(foreign.self);
  b.close(b.self);
  close_replica(&r);
  end(SIGKILL);
}

static void passwords_and_certificates_are_checked(void **state) {
  struct replica r = open_replica(kinds[0]);
  struct blob *blob = read_to(&r, 0, 100), *got = NULL;
  char url[128], number[16];
  start(port, NULL);
  snprintf(url, sizeof url, "redis://:wrong@127.0.0.1:%d", port);
  struct store_behind b = connect_with(&r, (struct store_redis_options){.url = url});
  assert_int_equal(b.get(b.self, STORE_STATE, "key", &got), STORE_DOWN);
  b.close(b.self);
  snprintf(url, sizeof url, "redis://127.0.0.1:%d", port);
  b = connect_with(&r, (struct store_redis_options){.url = url, .password = "secret"});
  put(&b, "key", NULL, blob);
  must_have(&b, STORE_STATE, "key", blob);
  b.close(b.self);
  end(SIGKILL);

  assert_int_equal(system("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=store -addext "
                          "subjectAltName=IP:127.0.0.1 -keyout store_key.pem -out store_cert.pem 2>/dev/null"),
                   0);
  snprintf(number, sizeof number, "%d", port + TLS_PORT);
  start(port + TLS_PORT, (const char *const[]){"--port", "0", "--tls-port", number, "--tls-cert-file", "store_cert.pem",
                                               "--tls-key-file", "store_key.pem", "--tls-auth-clients", "no", NULL});
  snprintf(url, sizeof url, "rediss://:secret@127.0.0.1:%d", port + TLS_PORT);
  b = connect_with(&r, (struct store_redis_options){.url = url, .ca = "store_cert.pem"});
  put(&b, "key", NULL, blob);
  must_have(&b, STORE_STATE, "key", blob);
  b.close(b.self);
  b = connect_with(&r, (struct store_redis_options){.url = url}); // nobody vouches for the certificate
  assert_int_equal(b.get(b.self, STORE_STATE, "key", &got), STORE_DOWN);
  b.close(b.self);
  snprintf(url, sizeof url, "rediss://:secret@localhost:%d", port + TLS_PORT); // it has another name
  b = connect_with(&r, (struct store_redis_options){.url = url, .ca = "store_cert.pem"});
  assert_int_equal(b.get(b.self, STORE_STATE, "key", &got), STORE_DOWN);
  b.close(b.self);
  blob_drop(blob);
  close_replica(&r);
  end(SIGKILL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(another_process_goes_on_bit_for_bit, stop_server),
      cmocka_unit_test_teardown(a_longer_text_and_its_forks_share_what_caches_have, stop_server),
      cmocka_unit_test_teardown(a_store_that_is_down_slows_and_never_stops, stop_server),
      cmocka_unit_test_teardown(what_waits_is_bounded_and_what_is_old_leaves, stop_server),
      cmocka_unit_test_teardown(a_state_larger_than_the_room_to_wait_is_written, stop_server),
      cmocka_unit_test_teardown(blocks_are_not_asked_for_all_at_once, stop_server),
      cmocka_unit_test_teardown(a_value_that_the_store_finds_too_large_does_not_stop_others, stop_server),
      cmocka_unit_test_teardown(another_models_values_are_refused, stop_server),
      cmocka_unit_test_teardown(passwords_and_certificates_are_checked, stop_server),
  };
  if (!store_tools_open("test_store")) return 1;
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  store_tools_close();
  remove("store_cert.pem");
  remove("store_key.pem");
  return failed;
}
