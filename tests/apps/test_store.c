// test_store: states in a Redis of the test's own, which is killed, stopped and restarted.
#include "common.h"
#include "platform.h"
#include "store_pack.h"
#include "store_redis.h"
#include "store_wire.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TINY TESTS_DIR "/vectors/models/"
static const char *const kinds[] = {TINY "tiny_gated_deltanet", TINY "tiny_delta_net_swa",
                                    TINY "tiny_delta_net_global"};
enum { KINDS = sizeof kinds / sizeof *kinds, GROWS = 2, TEXT = 600, TLS_PORT = 1 };

static deltaic_context *context;
static deltaic_device *device;
static int32_t text[TEXT];
static int port;
static pid_t server;
static struct metrics metrics;

// ---------------------------------------------------------------- the store

// A connection to the Redis on the port; NULL: it does not answer.
static struct wire *open_wire(int at, bool tls, struct wire_time *time) {
  char url[128], error[WIRE_ERROR];
  snprintf(url, sizeof url, "redis%s://:secret@127.0.0.1:%d", tls ? "s" : "", at);
  struct store_address address;
  assert_null(store_address_parse(url, &address));
  const struct wire_options options = {&address, tls ? "store_cert.pem" : NULL, time};
  return wire_open(&options, error);
}

static bool answers(int at, bool tls) {
  struct wire_time time = wire_time_of(2000);
  struct wire *wire = open_wire(at, tls, &time);
  wire_close(wire);
  return wire;
}

// A Redis on the port; more: options behind those that all have, ended by NULL.
static void start(int at, const char *const *more) {
  char number[16];
  const char *args[32] = {"redis-server", "--bind",     "127.0.0.1", "--save",    "",          "--daemonize",
                          "no",           "--loglevel", "warning",   "--logfile", "store.log", "--requirepass",
                          "secret"};
  size_t n = 13;
  snprintf(number, sizeof number, "%d", at);
  bool tls = false;
  for (; more && *more; more++) tls |= !strcmp(*more, "--tls-port"), args[n++] = *more;
  if (!tls) args[n++] = "--port", args[n++] = number;
  server = fork();
  if (!server) {
    execvp(args[0], (char *const *)args);
    _exit(127);
  }
  for (int i = 0; i < 400 && !answers(at, tls); i++) usleep(50000);
  assert_true(answers(at, tls));
}

static void end(int with) {
  if (server > 0) kill(server, with), waitpid(server, NULL, 0);
  server = 0;
}

// ---------------------------------------------------------------- models and states

struct replica {
  deltaic_model *model;
  deltaic_session *session;
  deltaic_model_info info;
  struct pack_layout layout;
};

static struct replica open_replica(const char *path) {
  struct replica r;
  const deltaic_session_options options = {.size = sizeof options, .context = TEXT};
  assert_int_equal(deltaic_model_open(device, path, NULL, &r.model), DELTAIC_OK);
  assert_int_equal(deltaic_session_create(r.model, &options, &r.session), DELTAIC_OK);
  deltaic_model_get_info(r.model, &r.info);
  assert_true(pack_layout_read(r.session, r.info.fingerprint, &r.layout));
  return r;
}

static void close_replica(struct replica *r) {
  pack_layout_free(&r->layout);
  deltaic_session_free(r->session);
  deltaic_model_close(r->model);
}

// The state after tokens first ... end - 1 are read too.
static struct blob *read_to(struct replica *r, size_t first, size_t stop) {
  size_t bytes;
  assert_int_equal(deltaic_session_eval(r->session, text + first, stop - first, DELTAIC_LOGITS_NONE, NULL), DELTAIC_OK);
  assert_int_equal(deltaic_session_state_size(r->session, &bytes), DELTAIC_OK);
  struct blob *blob = blob_create(bytes);
  assert_int_equal(deltaic_session_save(r->session, blob->bytes, bytes, NULL), DELTAIC_OK);
  return blob;
}

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
  assert_memory_equal(got->bytes, blob->bytes, blob->size);
  blob_drop(got);
}

static void must_lack(struct store_behind *b, enum store_kind kind, const char *key) {
  struct blob *got = NULL;
  assert_int_equal(b->get(b->self, kind, key, &got), STORE_ABSENT);
}

static struct blob *blob_of(const char *bytes) {
  struct blob *blob = blob_create(strlen(bytes));
  memcpy(blob->bytes, bytes, blob->size);
  return blob;
}

// ---------------------------------------------------------------- without a store

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
static char *there_and_back(const struct replica *r, const struct pack_state *s, size_t damage) {
  struct pack_blocks blocks = {.count = 0}, read;
  struct pack_bytes values[3] = {{0}};
  uint64_t cuts[] = {0, 40, s->position}, position;
  size_t bytes = 0, at = damage;
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
  char *state = NULL;
  bool fine =
      pack_read_blocks(&r->layout, values[0].data, values[0].bytes, &read, &position) && read.count == blocks.count;
  if (fine) state = pack_open(&r->layout, values[0].data, values[0].bytes, &bytes);
  fine = state && bytes == s->bytes;
  for (size_t i = 0; fine && i < blocks.count; i++)
    fine = pack_add(&r->layout, state, bytes, &read.items[i], &values[i + 1]);
  for (int i = 0; i < 3; i++) free(values[i].data);
  if (fine && pack_close(state, bytes)) return state;
  free(state);
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
      const struct pack_state s = {blob->bytes, blob->size, 100, bits[i]};
      char *back = there_and_back(&r, &s, 0);
      assert_non_null(back);
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
  const struct pack_state s = {blob->bytes, blob->size, 100, 16};
  for (size_t at = 1; at < blob->size / 2; at += at < 300 ? 1 : 997) {
    char *back = there_and_back(&r, &s, at);
    if (back) fail_msg("byte %zu may change", at);
  }
  const struct pack_blocks none = {.count = 0};
  struct pack_bytes value = pack_fixed(&r.layout, &s, &none);
  size_t bytes;
  r.layout.fingerprint ^= 1;
  assert_null(pack_open(&r.layout, value.data, value.bytes, &bytes));
  r.layout.fingerprint ^= 1;
  for (size_t cut = 0; cut < value.bytes; cut += 1 + cut / 7) {
    char *less = malloc(cut + 1); // its own block, so that the sanitizer sees an access past the end
    memcpy(less, value.data, cut);
    assert_null(pack_open(&r.layout, less, cut, &bytes));
    free(less);
  }
  assert_null(pack_fixed(&other.layout, &s, &none).data);
  free(value.data);
  struct blob *short_one = read_to(&other, 0, 100); // as large behind any number of tokens
  struct pack_state far = {short_one->bytes, short_one->size, INT32_MAX, 16};
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

// ---------------------------------------------------------------- with one

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
  const int64_t row = (int64_t)pack_position_bytes(&r.layout), fixed = (int64_t)whole->size - 400 * row;
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

static double since(uint64_t begin) { return (double)(platform_clock_ns() - begin) * 1e-9; }

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

// Whether the store answers a command that it answers after so long.
static bool answers_after(struct wire *wire, const char *seconds) {
  const struct wire_arg wait[] = {wire_text("BLPOP"), wire_text("no list"), wire_text(seconds)};
  redisReply *reply = wire_command(wire, wait, 3);
  if (reply) freeReplyObject(reply);
  return reply;
}

static void only_waiting_takes_of_the_time_for_the_store(void **state) {
  start(port, NULL);
  struct wire_time time = wire_time_of(600);
  struct wire *wire = open_wire(port, false, &time);
  assert_non_null(wire);
  usleep(900000); // this process computes, such as the checksums of a large state
  assert_true(answers_after(wire, "0.2"));
  time = wire_time_of(600);
  assert_true(answers_after(wire, "0.4"));
  assert_false(answers_after(wire, "0.4")); // all commands share the time
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
  assert_false(answers_after(wire, "4"));
  assert_true(since(begin) < 2);
  wire_close(wire);
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
  assert_in_range(metrics_get(&metrics, METRIC_STORE_WAITING), 0, 2 * (int64_t)blob->size);
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

static int stop_server(void **state) {
  end(SIGKILL);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(addresses_are_read_and_wrong_ones_named),
      cmocka_unit_test(stored_forms_give_the_state_back),
      cmocka_unit_test(damaged_and_foreign_values_are_refused),
      cmocka_unit_test_teardown(another_process_goes_on_bit_for_bit, stop_server),
      cmocka_unit_test_teardown(a_longer_text_and_its_forks_share_what_caches_have, stop_server),
      cmocka_unit_test_teardown(a_store_that_is_down_slows_and_never_stops, stop_server),
      cmocka_unit_test_teardown(only_waiting_takes_of_the_time_for_the_store, stop_server),
      cmocka_unit_test_teardown(a_store_that_falls_silent_is_not_waited_for_by_the_size_of_what_it_took, stop_server),
      cmocka_unit_test_teardown(what_waits_is_bounded_and_what_is_old_leaves, stop_server),
      cmocka_unit_test_teardown(a_value_that_the_store_finds_too_large_does_not_stop_others, stop_server),
      cmocka_unit_test_teardown(another_models_values_are_refused, stop_server),
      cmocka_unit_test_teardown(passwords_and_certificates_are_checked, stop_server),
  };
  const deltaic_context_options options = {.size = sizeof options, .cache_dir = ""};
  const deltaic_device_options cpu = {.size = sizeof cpu, .index = DELTAIC_DEVICE_INDEX_CPU, .threads = 1};
  uint32_t x = 1;
  for (int i = 0; i < TEXT; i++) text[i] = 3 + (int32_t)((x = x * 1664525u + 1013904223u) >> 16) % 256;
  port = 10000 + 2 * (int)(platform_process() * 7 % 11000); // below those that clients' sockets get
  complain_as("test_store");
  if (deltaic_context_create(&options, &context) || deltaic_device_open(context, &cpu, &device)) return 1;
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  deltaic_device_close(device);
  deltaic_context_free(context);
  remove("store_cert.pem");
  remove("store_key.pem");
  remove("store.log");
  return failed;
}
