// test_decoder: what every kind of decoder makes of tokens, broken bytes, and streams.
#include "tokenizer_tools.h"

// Tokens of a vocabulary made for the test, given as JSON, and what a decoder makes of 0 ... n - 1.
static void check_decoder(const char *decoder, const char *vocab, size_t n, const char *wanted) {
  char json[2048];
  snprintf(json, sizeof json, "{\"decoder\": %s, \"model\": {\"type\": \"BPE\", \"vocab\": {%s}, \"merges\": []}}",
           decoder, vocab);
  deltaic_tokenizer *t = parse(json);
  int32_t ids[16];
  for (size_t i = 0; i < n; i++) ids[i] = (int32_t)i;
  char *text = decode_both(t, ids, n, false, NULL);
  assert_string_equal(text, wanted);
  free(text);
  deltaic_tokenizer_close(t);
}

static void decoders_do_what_their_names_say(void **state) {
  check_decoder("null", "\"a\": 0, \"b\": 1", 2, "a b");
  check_decoder("{\"type\": \"ByteLevel\"}", "\"\\u0120a\": 0, \"\\u00c3\": 1, \"\\u00a9\": 2, \"\\u4f60b\": 3", 4,
                " a\u00e9\u4f60b");
  check_decoder("{\"type\": \"ByteFallback\"}", "\"<0xC3>\": 0, \"<0xA9>\": 1, \"b\": 2, \"<0xG0>\": 3", 4,
                "\u00e9b<0xG0>");
  check_decoder("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"x+\"}, \"content\": \"-\"}",
                "\"axx\": 0, \"xb\": 1", 2, "a--b");
  check_decoder("{\"type\": \"Strip\", \"content\": \"_\", \"start\": 1, \"stop\": 1}",
                "\"__a__\": 0, \"_\": 1, \"b_\": 2", 3, "_a_b");
  check_decoder("{\"type\": \"Metaspace\", \"replacement\": \"\u2581\"}", "\"\u2581a\": 0, \"\u2581b\": 1", 2, "a b");
  check_decoder("{\"type\": \"Metaspace\", \"replacement\": \"\u2581\", \"prepend_scheme\": \"never\"}",
                "\"\u2581a\": 0, \"\u2581b\": 1", 2, " a b");
}

static void fused_tokens_are_replaced_and_stripped_as_one(void **state) {
#define FUSED(more) "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, " more "]}"
  const char *vocab = "\"  a-\": 0, \"->b-\": 1, \"-\": 2, \"  \": 3";
  check_decoder(FUSED("{\"type\": \"Replace\", \"pattern\": {\"String\": \"-->\"}, \"content\": \"=\"}"), vocab, 4,
                "  a=b--  ");
  check_decoder(FUSED("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"-+>?\"}, \"content\": \"=\"}"), vocab, 4,
                "  a=b=  ");
  check_decoder(FUSED("{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 1}"), vocab, 4, " a-->b-- ");
  check_decoder(FUSED("{\"type\": \"Strip\", \"content\": \" \", \"start\": 9, \"stop\": 9}"), vocab, 4, "a-->b--");
}

static void broken_bytes_become_replacement_characters_as_in_rust(void **state) {
  static const struct {
    unsigned char bytes[6];
    const char *text;
  } cases[] = {{{0xE4, 0xBD, 0xA0}, "\u4f60"},
               {{0xE4, 0xBD, 'a'}, "\ufffda"},
               {{0xE4, 0xBD}, "\ufffd"},
               {{0xF0, 0x9F, 0x98}, "\ufffd"},
               {{0xC0, 0x80}, "\ufffd\ufffd"},
               {{0xED, 0xA0, 0x80}, "\ufffd\ufffd\ufffd"},
               {{0xF4, 0x90, 'x'}, "\ufffd\ufffdx"},
               {{0xE4, 0xE4, 0xBD, 0xA0}, "\ufffd\u4f60"}};
  deltaic_tokenizer *t = open_file(VECTORS "/bytes.json");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int32_t ids[6];
    size_t n = 0;
    for (; cases[i].bytes[n]; n++) {
      char character[5] = "";
      utf8_encode(byte_level_character(cases[i].bytes[n]), character);
      ids[n] = deltaic_tokenizer_find(t, character);
    }
    char *text = decode_both(t, ids, n, false, NULL);
    assert_string_equal(text, cases[i].text);
    free(text);
  }
  deltaic_tokenizer_close(t);
}

static void one_bad_byte_turns_a_run_of_byte_tokens_into_replacements(void **state) {
  check_decoder("{\"type\": \"ByteFallback\"}", "\"<0xC3>\": 0, \"<0xA9>\": 1, \"<0xFF>\": 2, \"b\": 3", 4,
                "\ufffd\ufffd\ufffdb");
}

static void bytes_of_a_token_are_its_own(void **state) {
  static const struct {
    const char *decoder, *vocab, *bytes;
  } cases[] = {
      {"{\"type\": \"ByteLevel\"}", "\"\\u00e4\\u00bd\": 0", "\xe4\xbd"},
      {"{\"type\": \"ByteLevel\"}", "\"\\u00a9\\u0120\\u00e4\": 0", "\xa9 \xe4"},
      {"{\"type\": \"ByteFallback\"}", "\"<0xC3>\": 0", "\xc3"},
      {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
       "\"Strip\", \"content\": \"\\u00e9\", \"start\": 1, \"stop\": 0}]}",
       "\"<0xC3>\": 0", "\xc3"},
      {"{\"type\": \"Metaspace\", \"replacement\": \"\\u2581\", \"prepend_scheme\": \"never\"}",
       "\"\\u2581\\u00e9\": 0", " \xc3\xa9"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char json[1024], bytes[8] = "";
    size_t count = 0;
    snprintf(json, sizeof json, "{\"decoder\": %s, \"model\": {\"type\": \"BPE\", \"vocab\": {%s}, \"merges\": []}}",
             cases[i].decoder, cases[i].vocab);
    deltaic_tokenizer *t = parse(json);
    assert_int_equal(deltaic_tokenizer_token_bytes(t, 0, bytes, sizeof bytes, &count), DELTAIC_OK);
    assert_int_equal(count, strlen(cases[i].bytes));
    assert_memory_equal(bytes, cases[i].bytes, count);
    assert_int_equal(deltaic_tokenizer_token_bytes(t, 0, bytes, count - 1, &count), DELTAIC_BUFFER_TOO_SMALL);
    assert_int_equal(deltaic_tokenizer_token_bytes(t, -1, bytes, sizeof bytes, &count), DELTAIC_INVALID_ARGUMENT);
    deltaic_tokenizer_close(t);
  }
}

// decode_both checks the claim on every chunk.
static void streamed_text_never_splits_a_character(void **state) {
  const char *paths[] = {MODELS_DIR "/novelist", VECTORS "/sp.json", VECTORS "/bytes.json"};
  uint32_t random = 1;
  for (int p = 0; p < 3; p++) {
    deltaic_tokenizer *t = open_file(paths[p]);
    for (int round = 0; round < 300; round++) {
      int32_t ids[40];
      uint32_t range = round % 2 ? 300 : (uint32_t)deltaic_tokenizer_size(t); // low ids are bytes
      for (int i = 0; i < 40; i++) ids[i] = (int32_t)((random = random * 1664525u + 1013904223u) >> 8) % (int32_t)range;
      free(decode_both(t, ids, (size_t)(round % 41), round % 3 == 0, NULL));
    }
    deltaic_tokenizer_close(t);
  }
}

static void a_finished_decoder_begins_a_new_text(void **state) {
  deltaic_tokenizer *t = open_file(VECTORS "/sp.json");
  deltaic_decoder *d;
  const char *text;
  size_t bytes;
  assert_int_equal(deltaic_decoder_create(t, true, &d), DELTAIC_OK);
  for (int round = 0; round < 2; round++) {
    assert_int_equal(deltaic_decoder_push(d, 540, &text, &bytes), DELTAIC_OK); // "▁H"
    assert_int_equal(bytes, 1);
    assert_memory_equal(text, "H", 1);
    assert_int_equal(deltaic_decoder_finish(d, &text, &bytes), DELTAIC_OK);
    assert_int_equal(bytes, 0);
  }
  assert_int_equal(deltaic_decoder_push(d, -1, &text, &bytes), DELTAIC_INVALID_ARGUMENT);
  assert_string_equal(deltaic_last_error(), "token id -1 is negative");
  deltaic_decoder_free(d);
  deltaic_decoder_free(NULL);
  deltaic_tokenizer_close(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(decoders_do_what_their_names_say),
      cmocka_unit_test(fused_tokens_are_replaced_and_stripped_as_one),
      cmocka_unit_test(broken_bytes_become_replacement_characters_as_in_rust),
      cmocka_unit_test(one_bad_byte_turns_a_run_of_byte_tokens_into_replacements),
      cmocka_unit_test(bytes_of_a_token_are_its_own),
      cmocka_unit_test(streamed_text_never_splits_a_character),
      cmocka_unit_test(a_finished_decoder_begins_a_new_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
