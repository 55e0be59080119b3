// What `deltaic chat` makes of a model's text: thinking, answer and stop strings, however the text arrives
// (chat_voice.c).
#include "chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct given {
  const char *opening, *text, *stop;
  bool may_think;
  const char *thinking, *answer, *all, *found; // found: the stop string, or NULL
};

static const struct given cases[] = {
    {"", "Hello!", NULL, false, "", "Hello!", "Hello!", NULL},
    {"", "<think>a</think>b", NULL, false, "", "<think>a</think>b", "<think>a</think>b", NULL},
    {"", "<think>\na\n\nb\n</think>\n\nc\n", NULL, true, "a\n\nb", "c\n", "<think>\na\n\nb\n</think>\n\nc\n", NULL},
    {"<think>\n", "a\n</think>\n\nb", NULL, true, "a", "b", "<think>\na\n</think>\n\nb", NULL},
    {"<think>", "a</think>b</think>c", NULL, true, "a", "b</think>c", "<think>a</think>b</think>c", NULL},
    {"<think>\n\n</think>\n\n", "b", NULL, true, "", "b", "<think>\n\n</think>\n\nb", NULL},
    {"<think>\n", "for ever\n", NULL, true, "for ever", "", "<think>\nfor ever\n", NULL},
    {"<think>\n", "a</thi", NULL, true, "a</thi", "", "<think>\na</thi", NULL},
    {"", "<thin", NULL, true, "", "<thin", "<thin", NULL},
    {"", " <thick> x", NULL, true, "", " <thick> x", " <thick> x", NULL},
    {"", "x <think> y", NULL, true, "", "x <think> y", "x <think> y", NULL},
    {"", "", NULL, true, "", "", "", NULL},
    {"", "one STOP two", "STOP", true, "", "one ", "one ", "STOP"},
    {"<think>", "a STOP b</think>c STOP d", "STOP", true, "a STOP b", "c ", "<think>a STOP b</think>c ", "STOP"},
    {"", "a<|im_end|>b", NULL, true, "", "a", "a", "<|im_end|>"},
    {"<think>\n", "a\n<|im_end|>b", NULL, true, "a", "", "<think>\na\n", "<|im_end|>"},
};

static void text_is_divided_however_it_arrives(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct given *g = &cases[i];
    struct chat_request request = {.as_json = true, .tokens = 1};
    if (g->stop) request.stops = (struct text_list){{g->stop}, 1};
    const struct chat chat = {.request = &request, .info = {.end = "<|im_end|>"}}; // without a tokenizer that has it
    struct voice v;
    assert_int_equal(voice_open(&v, &chat), 0);
    for (size_t part = 1; part < 20; part++) {
      assert_int_equal(voice_start(&v, g->opening, g->may_think), 0);
      for (size_t at = 0; at < strlen(g->text); at += part) {
        size_t n = strlen(g->text) - at < part ? strlen(g->text) - at : part;
        assert_int_equal(voice_say(&v, g->text + at, n), 0);
      }
      assert_int_equal(voice_finish(&v), 0);
      if (strcmp(v.thinking.data, g->thinking) || strcmp(v.answer.data, g->answer) || strcmp(v.all.data, g->all))
        fail_msg("case %zu in parts of %zu: \"%s\", \"%s\", \"%s\"", i, part, v.thinking.data, v.answer.data,
                 v.all.data);
      assert_true(g->found ? v.stop && !strcmp(v.stop, g->found) : !v.stop);
    }
    voice_close(&v);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(text_is_divided_however_it_arrives)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
