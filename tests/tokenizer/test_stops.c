// Stop strings in a text that arrives in parts (host/tokenizer/stops.c), against a search of the whole text.
#include "deltaic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 8 };

static size_t count_of(const char *const *stops) {
  size_t n = 0;
  while (stops[n]) n++;
  return n;
}

static deltaic_stops *made(const char *const *stops) {
  deltaic_stops *s;
  assert_int_equal(deltaic_stops_create(stops, count_of(stops), &s), DELTAIC_OK);
  return s;
}

// What is shown of the whole text, and which stop string ends it, found by trying every end.
static int32_t whole(const char *const *stops, const char *text, char *shown) {
  for (size_t end = 1; text[0] && end <= strlen(text); end++) {
    int32_t best = -1;
    for (int32_t i = 0; stops[i]; i++) {
      size_t n = strlen(stops[i]);
      if (n <= end && !memcmp(text + end - n, stops[i], n) && (best < 0 || n > strlen(stops[best]))) best = i;
    }
    if (best < 0) continue;
    sprintf(shown, "%.*s", (int)(end - strlen(stops[best])), text);
    return best;
  }
  strcpy(shown, text);
  return -1;
}

// Pushes `text` in parts of `part` bytes; everything that is shown, and what follows the stop string.
static int32_t in_parts(deltaic_stops *s, const char *text, size_t part, char *shown, char *rest) {
  const char *out;
  size_t bytes, used = 0;
  deltaic_stops_reset(s);
  for (size_t at = 0; at < strlen(text); at += part) {
    size_t n = strlen(text) - at < part ? strlen(text) - at : part;
    assert_int_equal(deltaic_stops_push(s, text + at, n, &out, &bytes), DELTAIC_OK);
    memcpy(shown + used, out, bytes);
    used += bytes;
  }
  assert_int_equal(deltaic_stops_finish(s, &out, &bytes), DELTAIC_OK);
  memcpy(shown + used, out, bytes);
  shown[used + bytes] = 0;
  out = deltaic_stops_rest(s, &bytes);
  sprintf(rest, "%.*s", (int)bytes, out);
  return deltaic_stops_found(s);
}

static const char *const sets[][MOST] = {
    {NULL},
    {"\nUser:", NULL},
    {"aab", "aaab", NULL},
    {"abcd", "bc", NULL},
    {"b", "ab", "cab", NULL},
    {"\xC3\xA9t\xC3\xA9", "\xE2\x82\xAC", NULL},
    {"<|im_end|>", "</think>", NULL},
    {"aaaa", NULL},
};

static void any_parts_give_what_the_whole_text_gives(void **state) {
  (void)state;
  static const char *const texts[] = {"",
                                      "hello",
                                      "one\nUser: two",
                                      "one\nUse",
                                      "aaaaab rest",
                                      "xabc",
                                      "xabcd",
                                      "cab",
                                      "un \xC3\xA9t\xC3\xA9 froid",
                                      "5 \xE2\x82\xAC",
                                      "a</thin</think>b<|im_end|>",
                                      "aaabaaaa",
                                      "\nUser\nUser:",
                                      "\xC3\xA9\xC3\xA9t\xC3\xA9"};
  char want[256], got[256], rest[256];
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
    deltaic_stops *s = made(sets[i]);
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
      int32_t found = whole(sets[i], texts[t], want);
      for (size_t part = 1; part < 12; part++) {
        assert_int_equal(in_parts(s, texts[t], part, got, rest), found);
        assert_string_equal(got, want);
        if (found >= 0) assert_string_equal(rest, texts[t] + strlen(want) + strlen(sets[i][found]));
      }
    }
    deltaic_stops_free(s);
  }
}

static void random_texts_of_few_letters_agree(void **state) {
  (void)state;
  char text[64], want[256], got[256], rest[256];
  uint32_t seed = 1;
  for (size_t i = 1; i < sizeof sets / sizeof *sets; i++) {
    deltaic_stops *s = made(sets[i]);
    for (int t = 0; t < 2000; t++) {
      size_t n = (size_t)(t % 24);
      for (size_t k = 0; k < n; k++) text[k] = "aabcd"[(seed = seed * 1664525u + 1013904223u) >> 16 & 3];
      text[n] = 0;
      assert_int_equal(in_parts(s, text, 1 + (size_t)t % 5, got, rest), whole(sets[i], text, want));
      assert_string_equal(got, want);
    }
    deltaic_stops_free(s);
  }
}

static void only_a_possible_beginning_is_held_back(void **state) {
  (void)state;
  deltaic_stops *s = made((const char *const[]){"stop", NULL});
  const char *out;
  size_t bytes;
  assert_int_equal(deltaic_stops_push(s, "a sto", 5, &out, &bytes), DELTAIC_OK);
  assert_true(bytes == 2 && !memcmp(out, "a ", 2));
  assert_int_equal(deltaic_stops_push(s, "rm", 2, &out, &bytes), DELTAIC_OK);
  assert_true(bytes == 5 && !memcmp(out, "storm", 5));
  assert_int_equal(deltaic_stops_push(s, "st", 2, &out, &bytes), DELTAIC_OK);
  assert_int_equal(bytes, 0);
  assert_int_equal(deltaic_stops_finish(s, &out, &bytes), DELTAIC_OK);
  assert_true(bytes == 2 && !memcmp(out, "st", 2));
  deltaic_stops_free(s);
}

static void bad_stop_strings_are_refused(void **state) {
  (void)state;
  deltaic_stops *s = NULL;
  char long_one[5000];
  memset(long_one, 'x', sizeof long_one - 1);
  long_one[sizeof long_one - 1] = 0;
  const struct {
    const char *stop, *message;
  } cases[] = {{"", "stop string 2 is empty"},
               {"caf\xE9", "stop string 2 is not UTF-8"},
               {"\xC3", "stop string 2 is not UTF-8"},
               {NULL, "stop string 2 is NULL"},
               {long_one, "4999 bytes"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *stops[] = {"good", cases[i].stop};
    assert_int_equal(deltaic_stops_create(stops, 2, &s), DELTAIC_INVALID_ARGUMENT);
    if (!strstr(deltaic_last_error(), cases[i].message)) fail_msg("%s", deltaic_last_error());
  }
  const char *many[257] = {0};
  assert_int_equal(deltaic_stops_create(many, 257, &s), DELTAIC_INVALID_ARGUMENT);
  assert_null(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_parts_give_what_the_whole_text_gives),
      cmocka_unit_test(random_texts_of_few_letters_agree),
      cmocka_unit_test(only_a_possible_beginning_is_held_back),
      cmocka_unit_test(bad_stop_strings_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
