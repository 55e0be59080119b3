// Texts of `deltaic serve` by themselves: which one gets a slot, states that slots have, clients that leave, tokens of
// the thinking, streams of responses.
#include "serve_reply.h"
#include "serve_slots.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---------------------------------------------------------------- fair admission

static void the_client_with_the_fewest_slots_is_next(void **state) {
  static struct server server;
  static struct batch b = {.server = &server, .slots = 4, .queued = 6};
  static struct call calls[3] = {{.client = 11}, {.client = 22}, {.client = 33}};
  static const int client[6] = {0, 0, 0, 0, 1, 2}, order[6] = {0, 4, 5, 1, 2, 3};
  static struct task tasks[6];
  for (int i = 0; i < 6; ++i) tasks[i] = (struct task){.call = &calls[client[i]], .next = i < 5 ? &tasks[i + 1] : NULL};
  b.first = tasks;
  b.last = &tasks[5];
  for (int i = 0; i < 6; ++i) {
    struct task *t = queue_take(&b);
    assert_ptr_equal(t, &tasks[order[i]]);
    if (i < 4) b.tasks[i] = t;
  }
  assert_null(queue_take(&b));
  assert_null(b.first);
  assert_int_equal(b.queued, 0);
}

static enum admission submit(struct batch *b, uint64_t client, size_t count) {
  static struct task tasks[32]; // of all calls
  static struct call calls[8];
  static size_t used, made;
  struct call *call = &calls[made++];
  uint32_t retry;
  *call = (struct call){.tasks = &tasks[used], .task_count = count, .client = client, .holders = 1};
  pthread_mutex_init(&call->lock, NULL);
  for (size_t i = 0; i < count; ++i) tasks[used++] = (struct task){.call = call};
  return batch_submit(b, call, &retry);
}

static void a_full_share_leaves_room_for_another_client(void **state) {
  static struct server server;
  static struct batch b = {.server = &server, .slots = 1, .most_queued = 8};
  pthread_mutex_init(&b.lock, NULL);
  assert_int_equal(submit(&b, 11, 8), ADMIT_QUEUED);
  assert_int_equal(submit(&b, 11, 1), ADMIT_FULL);
  assert_int_equal(submit(&b, 22, 5), ADMIT_FULL);
  assert_int_equal(submit(&b, 22, 4), ADMIT_QUEUED);
  assert_int_equal(submit(&b, 33, 2), ADMIT_QUEUED);
  assert_int_equal(submit(&b, 33, 1), ADMIT_FULL);
  assert_int_equal(submit(&b, 44, 1), ADMIT_QUEUED);
  assert_int_equal(b.queued, 15);
}

// ---------------------------------------------------------------- states in slots

static void texts_that_rely_on_a_slot_get_a_copy_or_are_told(void **state) {
  static struct server server;
  static struct batch b = {.server = &server, .slots = 2, .most_queued = 8};
  static struct task tasks[2];
  static struct call call = {.tasks = tasks, .task_count = 2, .holders = 1, .request = {.n = 2}};
  uint32_t retry;
  pthread_mutex_init(&b.lock, NULL);
  pthread_mutex_init(&call.lock, NULL);
  for (uint32_t i = 0; i < 2; ++i)
    tasks[i] = (struct task){.call = &call, .index = i, .base_count = 9, .base_key = "first", .in_slot = true};
  assert_false(batch_has_state(&b, "first"));
  assert_int_equal(batch_submit(&b, &call, &retry), ADMIT_MISSED);
  assert_null(b.first);
  resident_set(&b, 0, (struct resident){.key = "first"});
  resident_set(&b, 1, (struct resident){.key = "second"});
  assert_int_equal(slot_free(&b, NULL), 0);
  assert_true(batch_has_state(&b, "first")); // which others are to leave alone
  assert_int_equal(slot_free(&b, NULL), 1);
  assert_int_equal(slot_free(&b, &tasks[0]), 0);
  assert_int_equal(batch_submit(&b, &call, &retry), ADMIT_QUEUED);
  assert_true(resident_wanted(&b, 0));
  assert_false(resident_wanted(&b, 1));
  struct blob *copy = blob_create(4);
  resident_leave(&b, 0, copy);
  for (int i = 0; i < 2; ++i) {
    assert_ptr_equal(tasks[i].state, copy);
    assert_int_equal(tasks[i].cached, 9);
    blob_drop(tasks[i].state);
  }
  assert_int_equal(call.cached_tokens, 9); // two choices of one prompt
  assert_false(batch_has_state(&b, "first"));
  blob_drop(copy);
}

struct behind {
  struct blob *blob; // NULL: it has no state
  int gets;
};

static enum store_found behind_get(void *self, enum store_kind kind, const char *key, struct blob **blob) {
  struct behind *b = self;
  ++b->gets;
  assert_int_equal(kind, STORE_STATE);
  assert_string_equal(key, "first");
  if (!b->blob) return STORE_ABSENT;
  *blob = blob_hold(b->blob);
  return STORE_FOUND;
}

// Two prompts of three choices behind one turn: of the first prompt all choices relied on a slot, as scored ones do; of
// the second the first choice did, the others wait for it.
static void a_state_that_left_its_slot_is_fetched_once(void **state) {
  static struct server server;
  const struct store_options none = {.bytes = {0, 0}}; // so that each get asks behind
  for (int there = 0; there < 2; ++there) {
    struct behind b = {.blob = there ? blob_create(4) : NULL};
    struct task tasks[6];
    struct call call = {.server = &server, .tasks = tasks, .task_count = 6, .request = {.n = 3}};
    struct blob *own = blob_create(4);
    server.store = store_open(&none, &server.metrics);
    store_set_behind(server.store, (struct store_behind){.self = &b, .get = behind_get});
    pthread_mutex_init(&call.lock, NULL);
    for (uint32_t i = 0; i < 6; ++i)
      tasks[i] = (struct task){.call = &call, .index = i, .base_count = 9, .base_key = "first", .in_slot = i < 4};
    tasks[2].state = blob_hold(own); // got a copy when the state left
    tasks[2].cached = 9;
    const int64_t computed = metrics_get(&server.metrics, METRIC_STATES_COMPUTED);
    call_fetch_states(&call);
    assert_int_equal(b.gets, 1);
    assert_int_equal(metrics_get(&server.metrics, METRIC_STATES_COMPUTED) - computed, !there);
    for (uint32_t i = 0; i < 6; ++i) {
      const bool relied = i < 2 || i == 3;
      assert_ptr_equal(tasks[i].state, relied ? b.blob : i == 2 ? own : NULL);
      assert_int_equal(tasks[i].cached, i == 2 || (relied && there) ? 9 : 0);
      if (relied) assert_false(tasks[i].in_slot); // else it would be told again that the slot has none
      blob_drop(tasks[i].state);
    }
    assert_int_equal(call.cached_tokens, there ? 2 * 9 : 0); // once a prompt
    if (there) assert_int_equal(atomic_load(&b.blob->holders), 1);
    blob_drop(b.blob);
    blob_drop(own);
    store_close(server.store);
    pthread_mutex_destroy(&call.lock);
  }
}

// ---------------------------------------------------------------- lost clients

static void a_text_whose_last_token_is_drawn_outlives_its_client(void **state) {
  static struct server server;
  static struct batch b = {.server = &server, .slots = 2, .queued = 1};
  struct call *call = calloc(1, sizeof *call);
  assert_non_null(call);
  pthread_mutex_init(&b.lock, NULL);
  pthread_mutex_init(&call->lock, NULL);
  call->holders = 2; // the batch and this test
  call->server = &server;
  call->tasks = calloc(3, sizeof *call->tasks);
  assert_non_null(call->tasks);
  struct task *due = call->tasks, *running = due + 1, *waiting = due + 2;
  call->task_count = call->unfinished = 3;
  for (int i = 0; i < 3; ++i) call->tasks[i] = (struct task){.call = call, .slot = i < 2 ? i : -1};
  due->due = END_STOP;
  b.tasks[0] = due;
  b.tasks[1] = running;
  b.first = b.last = waiting;
  b.calls = call;
  call->gone = true;
  for (int round = 0; round < 2; ++round) { // its end may have to wait
    queue_end_lost(&b);
    assert_ptr_equal(b.tasks[0], due);
    assert_int_equal(due->ending, END_NONE);
    assert_null(b.tasks[1]);
    assert_int_equal(running->ending, END_CANCELLED);
    assert_int_equal(waiting->ending, END_CANCELLED);
    assert_null(b.first);
    assert_ptr_equal(b.calls, call);
    assert_int_equal(metrics_get(&server.metrics, METRIC_CANCELLED), 1);
  }
  batch_end(&b, due, END_STOP);
  assert_int_equal(due->ending, END_STOP);
  assert_null(b.tasks[0]);
  assert_null(b.calls);
  call_drop(call);
}

// ---------------------------------------------------------------- thinking

static uint32_t say(struct task *t, const deltaic_tokenizer *tokenizer, const char *text) {
  int32_t ids[64];
  size_t n = 0;
  assert_int_equal(deltaic_tokenizer_encode(tokenizer, text, strlen(text), false, ids, 64, &n), DELTAIC_OK);
  for (size_t i = 0; i < n; ++i) {
    ++t->made;
    assert_int_equal(voice_token(t, ids[i]), DELTAIC_OK);
  }
  return (uint32_t)n;
}

static void tokens_of_the_thinking_are_counted(void **state) {
  static const struct {
    const char *opening, *thought, *answer;
  } cases[] = {{"<think>\n", "so\n</think>", "\n\nNo."},
               {"", "<think>\nso\n</think>", "\n\nNo."},
               {"", "", "No <think> here"},
               {"<think>\n\n</think>\n\n", "", "No."},
               {"<think>\n", "so on", ""},
               {"", " \n<think>so </thin", ""},
               {"", "<think>", ""}};
  deltaic_tokenizer *tokenizer;
  assert_int_equal(deltaic_tokenizer_open(MODELS_DIR "/novelist", &tokenizer), DELTAIC_OK);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    struct task t = {.chat = true, .may_think = true};
    assert_int_equal(deltaic_decoder_create(tokenizer, true, &t.decoder), DELTAIC_OK);
    assert_int_equal(deltaic_stops_create(NULL, 0, &t.stops), DELTAIC_OK);
    assert_int_equal(voice_start(&t, cases[i].opening), DELTAIC_OK);
    const uint32_t thought = say(&t, tokenizer, cases[i].thought);
    say(&t, tokenizer, cases[i].answer);
    assert_int_equal(t.thought_tokens, thought);
    assert_int_equal(voice_finish(&t), DELTAIC_OK);
    deltaic_decoder_free(t.decoder);
    deltaic_stops_free(t.stops);
    deltaic_stops_free(t.thought);
    free(t.begin.data);
    free(t.all.data);
    free(t.text.data);
    free(t.thinking.data);
  }
  deltaic_tokenizer_close(tokenizer);
}

// ---------------------------------------------------------------- streams of responses

static void append(struct bytes *to, const char *text) { assert_true(bytes_add(to, text, strlen(text))); }

// What each event is about, in order: the last words of its type, and the output's number.
static void say_events(const struct call *call, char *to, size_t room) {
  size_t used = 0;
  for (const char *at = call->out.data; (at = strstr(at, "data: ")); ++at) {
    json_t *event = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
    const char *type = json_string_value(json_object_get(event, "type")) + strlen("response.");
    const json_t *index = json_object_get(event, "output_index");
    used += (size_t)snprintf(to + used, room - used, index ? "%s%lld " : "%s ", type, json_integer_value(index));
    assert_true(used < room);
    json_decref(event);
  }
}

static void thinking_and_message_are_two_items_of_a_response(void **state) {
  static const struct {
    const char *thinking, *text, *events;
    size_t items;
  } cases[] = {
      {"so", "No.",
       "created in_progress output_item.added0 reasoning_summary_part.added0 reasoning_summary_text.delta0 "
       "reasoning_summary_text.done0 reasoning_summary_part.done0 output_item.done0 output_item.added1 "
       "content_part.added1 output_text.delta1 output_text.done1 content_part.done1 output_item.done1 completed ",
       2},
      {"", "No.",
       "created in_progress output_item.added0 content_part.added0 output_text.delta0 output_text.done0 "
       "content_part.done0 output_item.done0 completed ",
       1},
      {"", "",
       "created in_progress output_item.added0 content_part.added0 output_text.done0 content_part.done0 "
       "output_item.done0 completed ",
       1},
      {"so", "",
       "created in_progress output_item.added0 reasoning_summary_part.added0 reasoning_summary_text.delta0 "
       "reasoning_summary_text.done0 reasoning_summary_part.done0 output_item.done0 completed ",
       1}};
  static struct server server = {.name = "model"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    struct task task = {.ending = END_NONE};
    struct call call = {.server = &server, .tasks = &task, .task_count = 1, .unfinished = 1, .id = "resp_0"};
    char events[1024];
    task.call = &call;
    call.request.api = API_RESPONSES;
    call.request.root = json_object();
    assert_true(stream_more(&call));
    if (*cases[i].thinking) append(&task.thinking, cases[i].thinking);
    assert_true(stream_more(&call));
    if (*cases[i].text) append(&task.text, cases[i].text);
    call.unfinished = 0;
    task.ending = END_EOS;
    assert_true(stream_more(&call));
    say_events(&call, events, sizeof events);
    assert_string_equal(events, cases[i].events);
    json_t *response = reply_response(&call, END_EOS);
    assert_int_equal(json_array_size(json_object_get(response, "output")), cases[i].items);
    json_decref(response);
    json_decref(call.request.root);
    free(call.out.data);
    free(task.text.data);
    free(task.thinking.data);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_client_with_the_fewest_slots_is_next),
      cmocka_unit_test(a_full_share_leaves_room_for_another_client),
      cmocka_unit_test(texts_that_rely_on_a_slot_get_a_copy_or_are_told),
      cmocka_unit_test(a_state_that_left_its_slot_is_fetched_once),
      cmocka_unit_test(a_text_whose_last_token_is_drawn_outlives_its_client),
      cmocka_unit_test(tokens_of_the_thinking_are_counted),
      cmocka_unit_test(thinking_and_message_are_two_items_of_a_response),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
