// Requests of `deltaic serve`: which fields are read, which are refused, and what an answer keeps of them.
#include "serve_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
  static const char body[] =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"top_k\": -1, \"max_tokens\": -1}";
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
      {API_RESPONSES, "{\"instructions\": \"I\", \"input\": [{\"type\": \"reasoning\"}]}", "no message"},
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fields_are_read),
      cmocka_unit_test(minus_one_is_no_limit),
      cmocka_unit_test(messages_are_joined_of_parts),
      cmocka_unit_test(wrong_requests_are_named),
      cmocka_unit_test(a_running_request_keeps_what_its_answer_repeats),
      cmocka_unit_test(only_responses_keep_labels),
      cmocka_unit_test(metadata_is_bounded),
      cmocka_unit_test(problems_are_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
