// Parts of `deltaic serve` by themselves: the store in memory, turns as bytes, requests, keys.
#include "serve_keys.h"
#include "serve_request.h"
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
  const struct store_options options = {.bytes = {0, 3500}};
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
  const struct turn turn = {tokens, 3, pending, 1, "resp_1", "[]", 2, "chat-1", spans, 2};
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
  blob->bytes[20 + 2 * STORE_KEY + 4 * 4] ^= 4; // the first span ends behind the second
  struct turn kept = {0};
  assert_false(turn_unpack(blob, 5, &kept));
  assert_null(kept.tokens); // nothing leads into bytes that are dropped
  blob->bytes[20 + 2 * STORE_KEY + 4 * 4] ^= 4;
  for (size_t i = 0; i < 20; ++i) { // every word of the head is checked
    blob->bytes[i] ^= 0x80;
    assert_false(turn_unpack(blob, 5, &back));
    blob->bytes[i] ^= 0x80;
  }
  for (size_t i = 0; i < 4; ++i) { // tokens, and the one that is pending
    blob->bytes[20 + 2 * STORE_KEY + 4 * i + 3] ^= 0x80;
    assert_false(turn_unpack(blob, 5, &back));
    blob->bytes[20 + 2 * STORE_KEY + 4 * i + 3] ^= 0x80;
  }
  assert_false(turn_unpack(blob, 4, &back)); // of another vocabulary
  --blob->size;
  assert_false(turn_unpack(blob, 5, &back));
  blob->size = 8;
  assert_false(turn_unpack(blob, 5, &back));
  blob_drop(blob);
}

// ---------------------------------------------------------------- requests

static void fields_are_read(void **state) {
  static const char body[] =
      "{\"prompt\": [[1, 2], [3]], \"n\": 2, \"max_tokens\": 7, \"temperature\": 0.5, \"seed\": 9,"
      "\"stop\": [\"a\", \"b\"], \"logprobs\": 3, \"echo\": true, \"stream\": true,"
      "\"stream_options\": {\"include_usage\": true}, \"top_p\": null, \"tool_choice\": \"auto\", \"unknown\": {}}";
  struct request r;
  struct problem p;
  assert_true(request_read(API_COMPLETIONS, body, strlen(body), &r, &p));
  assert_int_equal(r.prompt_count, 2);
  assert_int_equal(json_array_size(r.prompts[0].tokens), 2);
  assert_int_equal(r.n, 2);
  assert_int_equal(r.most, 7);
  assert_int_equal(r.given, GIVEN_TEMPERATURE | GIVEN_SEED);
  assert_int_equal(r.sampling.seed, 9);
  assert_int_equal(r.stop_count, 2);
  assert_int_equal(r.likely, 3);
  assert_true(r.echo && r.stream && r.stream_usage && r.store);
  request_free(&r);
}

static void minus_one_is_no_limit(void **state) {
  static const char body[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"top_k\": -1, \"max_tokens\": -1}";
  struct request r;
  struct problem p;
  assert_true(request_read(API_CHAT, body, strlen(body), &r, &p));
  assert_int_equal(r.given, GIVEN_TOP_K);
  assert_int_equal(r.sampling.top_k, 0);
  assert_int_equal(r.most, UINT32_MAX);
  request_free(&r);
}

static void messages_are_joined_of_parts(void **state) {
  static const char body[] = "{\"instructions\": \"I\", \"input\": [{\"role\": \"user\", \"content\": [{\"type\": "
                             "\"input_text\", \"text\": \"a\"}, {\"type\": \"input_text\", \"text\": \"b\"}]},"
                             "{\"type\": \"message\", \"role\": \"assistant\", \"content\": \"\"}]}";
  struct request r;
  struct problem p;
  assert_true(request_read(API_RESPONSES, body, strlen(body), &r, &p));
  assert_int_equal(r.message_count, 3);
  assert_int_equal(r.messages[0].role, DELTAIC_ROLE_SYSTEM);
  assert_string_equal(r.messages[1].text, "ab");
  assert_string_equal(r.messages[2].text, "");
  assert_false(r.plain);
  request_free(&r);
}

static void wrong_requests_are_named(void **state) {
  static const struct {
    enum api api;
    const char *body, *text;
  } cases[] = {
      {API_COMPLETIONS, "", "not JSON"},
      {API_COMPLETIONS, "{\"prompt\": \"x\", \"prompt\": \"y\"}", "not JSON"}, // twice
      {API_COMPLETIONS, "{\"prompt\": \"\\ud800\"}", "not JSON"},
      {API_COMPLETIONS, "{\"prompt\": [1, -1]}", "prompt takes"},
      {API_COMPLETIONS, "{\"prompt\": [1.5]}", "prompt takes"},
      {API_COMPLETIONS, "{\"prompt\": \"x\", \"stop\": \"\"}", "stop takes"},
      {API_COMPLETIONS, "{\"prompt\": \"x\", \"stop\": \"a\\u0000b\"}", "stop takes"},
      {API_COMPLETIONS, "{\"prompt\": \"x\", \"seed\": -1}", "seed takes"},
      {API_COMPLETIONS, "{\"prompt\": \"x\", \"top_k\": -2}", "top_k takes"},
      {API_COMPLETIONS, "{\"prompt\": \"x\", \"max_tokens\": -1.0}", "max_tokens takes"},
      {API_COMPLETIONS, "{\"prompt\": \"x\", \"stream\": 1}", "stream takes"},
      {API_COMPLETIONS, "{\"prompt\": \"x\", \"best_of\": 2}", "best_of"},
      {API_COMPLETIONS, "{\"prompt\": \"x\", \"model\": \"a\\u0000b\"}", "model takes"},
      {API_COMPLETIONS, "{\"prompt\": \"x\", \"temperature\": 1e30}", "temperature takes"},
      {API_COMPLETIONS, "{\"prompt\": \"x\", \"user\": [[]]}", "user takes"},
      {API_COMPLETIONS, "{\"prompt\": \"x\", \"metadata\": [[], []]}", "metadata takes"},
      {API_RESPONSES, "{\"input\": \"x\", \"metadata\": {\"a\": \"b\", \"c\": []}}", "metadata takes"},
      {API_CHAT, "{}", "messages takes"},
      {API_CHAT, "{\"messages\": []}", "at least one"},
      {API_CHAT, "{\"messages\": [5]}", "messages"},
      {API_CHAT, "{\"messages\": [{\"role\": \"user\"}]}", "content takes"},
      {API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]}", "no string"},
      {API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"top_logprobs\": 2}",
       "top_logprobs needs"},
      {API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"max_tokens\": 0}", "at least one token"},
      {API_RESPONSES, "{}", "no input"},
      {API_RESPONSES, "{\"input\": [{\"type\": \"function_call_output\"}]}", "function_call_output"},
      {API_RESPONSES, "{\"input\": [{\"type\": \"reasoning\", \"summary\": []}]}", "no message"},
      {API_CHAT, "{\"messages\": [{\"type\": \"reasoning\"}]}", "not supported"},
      {API_RESPONSES, "{\"input\": \"x\", \"background\": true}", "background"},
      {API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tool_choice\": \"required\"}",
       "tools are not supported"},
      {API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"function_call\": {\"name\": \"f\"}}",
       "tools are not supported"},
      {API_RESPONSES, "{\"input\": \"x\", \"include\": [\"message.output_text.logprobs\"]}", "include"},
      {API_RESPONSES, "{\"input\": \"x\", \"prompt\": {\"id\": \"y\"}}", "stored prompts"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    struct request r;
    struct problem p;
    if (request_read(cases[i].api, cases[i].body, strlen(cases[i].body), &r, &p))
      fail_msg("%s was taken", cases[i].body);
    if (!strstr(p.text, cases[i].text))
      fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].body, p.text, cases[i].text);
    assert_int_equal(p.status, 400);
  }
}

static void a_running_request_keeps_what_its_answer_repeats(void **state) {
  static const char body[] = "{\"instructions\": \"I\", \"input\": \"x\", \"user\": \"u\", \"unknown\": [1, 2]}";
  struct request r;
  struct problem p;
  assert_true(request_read(API_RESPONSES, body, strlen(body), &r, &p));
  request_forget(&r);
  assert_int_equal(json_object_size(r.root), 2);
  assert_string_equal(json_string_value(json_object_get(r.root, "user")), "u");
  assert_string_equal(r.messages[1].text, "x");
  request_free(&r);
}

static void only_responses_keep_labels(void **state) {
  static const char body[] = "{\"prompt\": \"x\", \"user\": \"u\", \"metadata\": {\"a\": \"b\"}, \"model\": \"m\","
                             "\"instructions\": [[]], \"max_output_tokens\": [[]], \"stop\": null}";
  struct request r;
  struct problem p;
  assert_true(request_read(API_COMPLETIONS, body, strlen(body), &r, &p));
  request_forget(&r);
  assert_int_equal(json_object_size(r.root), 2);
  assert_string_equal(r.model, "m");
  request_free(&r);
}

// 16 labels of 512 bytes are the most.
static void metadata_is_bounded(void **state) {
  for (int more = 0; more < 3; ++more) {
    const int count = 16 + (more == 1), bytes = 512 + (more == 2);
    char body[16384];
    int used = snprintf(body, sizeof body, "{\"input\": \"x\", \"metadata\": {");
    for (int i = 0; i < count; ++i)
      used += snprintf(body + used, sizeof body - (size_t)used, "%s\"%d\": \"%0*d\"", i ? "," : "", i, bytes, i);
    used += snprintf(body + used, sizeof body - (size_t)used, "}}");
    struct request r;
    struct problem p;
    assert_int_equal(request_read(API_RESPONSES, body, (size_t)used, &r, &p), !more);
    if (more) {
      assert_string_equal(p.param, "metadata");
      continue;
    }
    request_forget(&r);
    assert_int_equal(json_object_size(json_object_get(r.root, "metadata")), 16);
    request_free(&r);
  }
}

static void problems_are_text(void **state) {
  static const struct {
    const char *said, *kept;
  } cases[] = {
      {"a\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "a\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
      {"\xff\x80", "??"},           // begin no character
      {"\xe2\x82", "??"},           // cut
      {"\xe2\x82 x", "?? x"},       // cut, and more follows
      {"\xc0\xaf", "??"},           // too long
      {"\xed\xa0\x80", "???"},      // half of a pair
      {"\xf4\x90\x80\x80", "????"}, // too large
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    struct problem p = {0};
    problem_set(&p, 400, "", "", "%s", cases[i].said);
    assert_string_equal(p.text, cases[i].kept);
  }
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
      cmocka_unit_test(fields_are_read),
      cmocka_unit_test(minus_one_is_no_limit),
      cmocka_unit_test(messages_are_joined_of_parts),
      cmocka_unit_test(wrong_requests_are_named),
      cmocka_unit_test(a_running_request_keeps_what_its_answer_repeats),
      cmocka_unit_test(only_responses_keep_labels),
      cmocka_unit_test(metadata_is_bounded),
      cmocka_unit_test(problems_are_text),
      cmocka_unit_test(keys_are_whole_lines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
