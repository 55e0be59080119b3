// test_status: messages and status texts.
#include "status.h"

#include "devices.h"

#include <pthread.h>

static void control_characters_of_a_name_do_not_reach_the_terminal(void **state) {
  assert_int_equal((fail)(DELTAIC_BAD_FILE, "tensor %s is bad", "a\x1b[2Jb\nc\x7f"), DELTAIC_BAD_FILE);
  assert_string_equal(deltaic_last_error(), "tensor a?[2Jb?c? is bad");
}

static void a_message_may_quote_the_one_before(void **state) {
  (fail)(DELTAIC_IO, "inner");
  (fail)(DELTAIC_IO, "outer: %s", deltaic_last_error());
  assert_string_equal(deltaic_last_error(), "outer: inner");
}

static void what_memory_was_for_may_be_one_or_many(void **state) {
  assert_int_equal(fail_memory("the weights", 12), DELTAIC_OUT_OF_MEMORY);
  assert_string_equal(deltaic_last_error(), "out of memory: 12 bytes for the weights");
}

static void the_pointer_that_is_null_is_named(void **state) {
  int x;
  assert_false(refuse_null("f", "a,b,text", &x, &x, FILLED(NULL, 0)));
  assert_true(refuse_null("f", "a,b,text", &x, NULL, NULL));
  assert_string_equal(deltaic_last_error(), "f: b is NULL");
  assert_true(refuse_null("f", "a,b,text", &x, &x, FILLED(NULL, 3)));
  assert_string_equal(deltaic_last_error(), "f: text is NULL");
}

static void a_long_message_is_cut_and_ended(void **state) {
  char name[4000];
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = 0;
  (fail)(DELTAIC_IO, "%s", name);
  assert_in_range(strlen(deltaic_last_error()), 500, 2000);
}

static void *empty_elsewhere(void *unused) { return (void *)(deltaic_last_error()[0] == 0 ? "empty" : NULL); }

static void every_thread_has_its_own_message(void **state) {
  pthread_t thread;
  void *result;
  (fail)(DELTAIC_IO, "here");
  assert_int_equal(pthread_create(&thread, NULL, empty_elsewhere, NULL), 0);
  pthread_join(thread, &result);
  assert_non_null(result);
  assert_string_equal(deltaic_last_error(), "here");
}

static void every_status_has_a_name_and_a_text(void **state) {
#define CHECK(name, value, text)                                                                                       \
  assert_string_equal(deltaic_status_name(DELTAIC_##name), "DELTAIC_" #name);                                          \
  assert_string_equal(deltaic_status_text(DELTAIC_##name), text);
  DELTAIC_STATUS_MAP(CHECK)
  assert_string_equal(deltaic_status_text((deltaic_status)99), "unknown status");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(control_characters_of_a_name_do_not_reach_the_terminal),
      cmocka_unit_test(a_message_may_quote_the_one_before),
      cmocka_unit_test(what_memory_was_for_may_be_one_or_many),
      cmocka_unit_test(the_pointer_that_is_null_is_named),
      cmocka_unit_test(a_long_message_is_cut_and_ended),
      cmocka_unit_test(every_thread_has_its_own_message),
      cmocka_unit_test(every_status_has_a_name_and_a_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
