// test_tokenizer: reference results for three tokenizers (vectors/tokenizer/README.md), the words of well-known
// patterns checked by hand, each normalizer and pre-tokenizer, and the refusal of bad files. test_decoder has the way
// back.
#include "tokenizer_tools.h"

#include <time.h>

// ---------------------------------------------------------------- helpers

// A tokenizer of which one part matters: `part` is its JSON, such as "\"normalizer\": {...}". The letters a, b, c and
// the mark of a space are tokens, and ab is a merge.
static deltaic_tokenizer *parse_part(const char *part) {
  char json[4096];
  snprintf(json, sizeof json,
           "{%s, \"added_tokens\": [{\"id\": 0, \"content\": \"<s>\", \"special\": true}], \"model\": {\"type\": "
           "\"BPE\", \"vocab\": {\"<s>\": 0, \"a\": 1, \"b\": 2, \"c\": 3, \"ab\": 4, \"\u2581\": 5, \"d\": 6}, "
           "\"merges\": [\"a b\"]}}",
           part);
  return parse(json);
}

// The words of `text`, each ended by '|', an added token as "#id|".
static void check_words(const deltaic_tokenizer *t, const char *text, const char *wanted) {
  struct pieces pieces = {0};
  struct text words = {0};
  assert_int_equal(tokenizer_split(t, text, strlen(text), &pieces), DELTAIC_OK);
  for (size_t i = 0; i < pieces.count; i++) {
    char id[16];
    snprintf(id, sizeof id, "#%d", (int)pieces.items[i].id);
    if (pieces.items[i].id >= 0)
      text_append(&words, id, strlen(id));
    else
      text_append(&words, pieces.text.bytes + pieces.items[i].begin, pieces.items[i].length);
    text_append(&words, "|", 1);
  }
  text_append(&words, "", 1);
  assert_string_equal(words.bytes, wanted);
  text_free(&words);
  pieces_free(&pieces);
}

static void check_part(const char *part, const char *text, const char *wanted) {
  deltaic_tokenizer *t = parse_part(part);
  check_words(t, text, wanted);
  deltaic_tokenizer_close(t);
}

static void check_encode(const deltaic_tokenizer *t, const char *text, bool special, const char *wanted) {
  int32_t ids[64];
  size_t count;
  char list[512] = "";
  assert_int_equal(deltaic_tokenizer_encode(t, text, strlen(text), special, ids, 64, &count), DELTAIC_OK);
  for (size_t i = 0; i < count; i++) snprintf(list + strlen(list), 16, "%s%d", i ? " " : "", (int)ids[i]);
  assert_string_equal(list, wanted);
}

// ---------------------------------------------------------------- reference results

static void check_ids(const deltaic_tokenizer *t, const json_t *item, const char *key, bool special) {
  const json_t *text = json_object_get(item, "text"), *wanted = json_object_get(item, key);
  size_t count = 0, n = json_array_size(wanted);
  assert_int_equal(
      deltaic_tokenizer_encode(t, json_string_value(text), json_string_length(text), special, NULL, 0, &count),
      DELTAIC_OK);
  assert_int_equal(count, n);
  int32_t *ids = malloc((n + 1) * sizeof *ids);
  assert_int_equal(
      deltaic_tokenizer_encode(t, json_string_value(text), json_string_length(text), special, ids, n, &count),
      DELTAIC_OK);
  for (size_t i = 0; i < n; i++) assert_int_equal(ids[i], json_integer_value(json_array_get(wanted, i)));
  if (!special) { // the file's "decoded" is of these
    const json_t *decoded = json_object_get(item, "decoded");
    size_t length;
    char *whole = decode_both(t, ids, n, false, &length);
    assert_int_equal(length, json_string_length(decoded));
    assert_memory_equal(whole, json_string_value(decoded), length);
    free(whole);
  }
  free(ids);
}

static void check_cases(const char *path, const char *file, const char *name) {
  json_t *cases = json_load_file(file, JSON_ALLOW_NUL, NULL), *item;
  size_t index;
  assert_non_null(cases);
  assert_true(json_array_size(json_object_get(cases, name)) >= 58);
  deltaic_tokenizer *t = open_file(path);
  json_array_foreach(json_object_get(cases, name), index, item) {
    check_ids(t, item, "ids", false);
    check_ids(t, item, "ids_special", true);
  }
  deltaic_tokenizer_close(t);
  json_decref(cases);
}

static void byte_level_bpe_matches_gpt2s_algorithm(void **state) {
  check_cases(MODELS_DIR "/novelist", VECTORS "/bpe.json", "bpe");
}

static void byte_fallback_bpe_matches_huggingface(void **state) {
  check_cases(VECTORS "/sp.json", VECTORS "/cases.json", "sp");
}

static void bytes_without_merges_match_huggingface(void **state) {
  check_cases(VECTORS "/bytes.json", VECTORS "/cases.json", "bytes");
}

static void kind_size_and_find_describe_the_file(void **state) {
  deltaic_tokenizer *t = open_file(MODELS_DIR "/novelist/tokenizer.json");
  assert_string_equal(deltaic_tokenizer_kind(t), "byte-level BPE");
  assert_int_equal(deltaic_tokenizer_size(t), 4096);
  assert_int_equal(deltaic_tokenizer_find(t, "</s>"), 2);
  assert_int_equal(deltaic_tokenizer_find(t, "no such token"), -1);
  deltaic_tokenizer_close(t);
  t = open_file(VECTORS "/sp.json");
  assert_string_equal(deltaic_tokenizer_kind(t), "BPE with byte fallback");
  deltaic_tokenizer_close(t);
}

// ---------------------------------------------------------------- patterns of known models

static void gpt2_words_are_contractions_letters_numbers_others(void **state) {
  const char *part = "\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": "
                     "\"'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|"
                     "\\\\s+\"}}";
  check_part(part, "It's he'll I'VE", "It|'s| he|'ll| I|'|VE|");
  check_part(part, "a  b   12345!?\n\n x", "a| | b|  | 12345|!?|\n\n| x|");
  check_part(part, "h\u00e9llo \u4f60\u597d \u00bd\u0663", "h\u00e9llo| \u4f60\u597d| \u00bd\u0663|");
  check_part(part, "end  ", "end|  |");
}

static void llama3_words_have_numbers_of_three_and_a_leading_mark(void **state) {
  const char *part =
      "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"behavior\": "
      "\"Isolated\", \"invert\": false, \"pattern\": {\"Regex\": \"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}"
      "\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|"
      "\\\\s+\"}}]}";
  check_part(part, "I'VE it's", "I|'VE| it|'s|");
  check_part(part, "1234567 x", "123|456|7| x|");
  check_part(part, "(word) $5.00", "(word|)| $|5|.|00|");
  check_part(part, "a;\n\n  b\n   c", "a|;\n\n| | b|\n|  | c|");
  check_part(part, "\u00e9t\u00e9 \u4f60\u597d\u3002\r\n", "\u00e9t\u00e9| \u4f60\u597d|\u3002\r\n|");
}

static void qwen_words_have_single_digits(void **state) {
  const char *part =
      "\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", "
      "\"pattern\": {\"Regex\": \"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
      "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}}";
  check_part(part, "x123 4", "x|1|2|3| |4|");
  check_part(part, "e\u0301 don't", "\u00e9| don|'t|");
}

// ---------------------------------------------------------------- normalizers

static void normalizers_rewrite_the_text(void **state) {
  check_part("\"normalizer\": null", "aB", "aB|");
  check_part("\"normalizer\": {\"type\": \"Lowercase\"}", "\u00c9A\u0130", "\u00e9ai\u0307|");
  check_part("\"normalizer\": {\"type\": \"NFD\"}", "\u00e9", "e\u0301|");
  check_part("\"normalizer\": {\"type\": \"NFC\"}", "e\u0301", "\u00e9|");
  check_part("\"normalizer\": {\"type\": \"NFKC\"}", "\ufb01\u00b2", "fi2|");
  check_part("\"normalizer\": {\"type\": \"NFKD\"}", "\u00e9\uff21", "e\u0301A|");
  check_part("\"normalizer\": {\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": false}", " \u2003a ", "a |");
  check_part("\"normalizer\": {\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}", " \t", "");
  check_part("\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"\u2581\"}", "a", "\u2581a|");
  check_part("\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"\\\\s+\"}, \"content\": \" \"}",
             "a \n b", "a b|");
  check_part("\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"''\"}, \"content\": \"\\\"\"}",
             "'a''b'''", "'a\"b\"'|");
  check_part("\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFD\"}, {\"type\": "
             "\"StripAccents\"}, {\"type\": \"Lowercase\"}]}",
             "\u00c9t\u00e9", "ete|");
}

// ---------------------------------------------------------------- pre-tokenizers

static void check_split(const char *pattern, const char *behavior, bool invert, const char *text, const char *wanted) {
  char part[512];
  snprintf(part, sizeof part,
           "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": %s, \"behavior\": \"%s\", \"invert\": %s}", pattern,
           behavior, invert ? "true" : "false");
  check_part(part, text, wanted);
}

// The expectations are those of HuggingFace's own test of its five behaviors.
static void split_puts_delimiters_where_the_behavior_says(void **state) {
  const char *text = "The-final--countdown", *dash = "{\"String\": \"-\"}", *regex = "{\"Regex\": \"-\"}";
  check_split(dash, "Removed", false, text, "The|final|countdown|");
  check_split(dash, "Isolated", false, text, "The|-|final|-|-|countdown|");
  check_split(dash, "MergedWithPrevious", false, text, "The-|final-|-|countdown|");
  check_split(dash, "MergedWithNext", false, text, "The|-final|-|-countdown|");
  check_split(regex, "Contiguous", false, text, "The|-|final|--|countdown|");
  check_split("{\"Regex\": \"[a-zT]+\"}", "Removed", true, text, "The|final|countdown|");
  check_split("{\"Regex\": \"(?=-)|l\"}", "Isolated", false, "a-l--b", "a|-|l|-|-b|");
}

static void simple_pretokenizers_cut_by_class(void **state) {
  const char *text = "Hey, it's 12\u00bd x";
  check_part("\"pre_tokenizer\": {\"type\": \"Whitespace\"}", text, "Hey|,|it|'|s|12|\u00bd|x|");
  check_part("\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}", text, "Hey,|it's|12\u00bd|x|");
  check_part("\"pre_tokenizer\": {\"type\": \"Punctuation\"}", text, "Hey|,| it|'|s 12\u00bd x|");
  check_part("\"pre_tokenizer\": {\"type\": \"Digits\", \"individual_digits\": true}", text,
             "Hey, it's |1|2|\u00bd| x|");
  check_part("\"pre_tokenizer\": {\"type\": \"Digits\", \"individual_digits\": false}", text,
             "Hey, it's |12\u00bd| x|");
}

static void byte_level_writes_bytes_as_characters(void **state) {
  check_part("\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true}", "a b\n\u00e9",
             "\u0120a|\u0120b|\u010a|\u00c3\u00a9|");
  check_part("\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}", "a b",
             "a\u0120b|");
  for (int b = 0; b < 256; b++) assert_int_equal(byte_level_byte(byte_level_character((unsigned char)b)), b);
}

static void metaspace_prepends_by_its_scheme(void **state) {
#define METASPACE(more) "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\u2581\"" more "}"
  check_part(METASPACE(""), "a <s>b  c", "\u2581a|\u2581|#0|\u2581b|\u2581|\u2581c|");
  check_part(METASPACE(", \"prepend_scheme\": \"first\""), "a<s>b", "\u2581a|#0|b|");
  check_part(METASPACE(", \"prepend_scheme\": \"first\""), "<s>b", "#0|b|");
  check_part(METASPACE(", \"prepend_scheme\": \"never\""), "a b", "a|\u2581b|");
  check_part(METASPACE(", \"add_prefix_space\": false, \"prepend_scheme\": \"never\""), "a", "a|");
  check_part(METASPACE(", \"add_prefix_space\": true"), " a", "\u2581a|");
  check_part(METASPACE(", \"split\": false"), "a b", "\u2581a\u2581b|");
}

// ---------------------------------------------------------------- added tokens

static void added_tokens_take_spaces_and_mind_words(void **state) {
  const char *json = "{\"normalizer\": {\"type\": \"Lowercase\"}, \"added_tokens\": ["
                     "{\"id\": 10, \"content\": \"<m>\", \"lstrip\": true, \"normalized\": false},"
                     "{\"id\": 11, \"content\": \"<r>\", \"rstrip\": true, \"normalized\": false},"
                     "{\"id\": 12, \"content\": \"one\", \"single_word\": true, \"normalized\": false},"
                     "{\"id\": 13, \"content\": \"Day\", \"normalized\": true},"
                     "{\"id\": 14, \"content\": \"<m><m>\", \"normalized\": false}],"
                     "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}";
  deltaic_tokenizer *t = parse(json);
  check_words(t, "A  <m> b", "a|#10| b|");
  check_words(t, "A  <r> \tb<r>", "a  |#11|b|#11|");
  check_words(t, "one bone one1 (one)", "#12| bone one1 (|#12|)|");
  check_words(t, "DAY by dAy", "#13| by |#13|");
  check_words(t, "<m><m><m>", "#14|#10|");
  assert_int_equal(deltaic_tokenizer_size(t), 15);
  deltaic_tokenizer_close(t);
}

static void special_tokens_can_be_left_out_of_the_text(void **state) {
  deltaic_tokenizer *t = open_file(MODELS_DIR "/novelist");
  int32_t ids[] = {1, 42, 503, 81, 2, 4095000}; // <s> H ell o </s>, and an id that no token has
  char *text = decode_both(t, ids, 6, true, NULL);
  assert_string_equal(text, "Hello");
  free(text);
  text = decode_both(t, ids, 6, false, NULL);
  assert_string_equal(text, "<s>Hello</s>");
  free(text);
  deltaic_tokenizer_close(t);
}

// ---------------------------------------------------------------- the model

static void merges_come_in_two_formats(void **state) {
#define MODEL(merges, more)                                                                                            \
  "{\"model\": {\"type\": \"BPE\"" more ", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"bc\": 4, \"abc\": "  \
  "5, \"\\u00e9\": 6, \"<unk>\": 7, \"<0xC3>\": 8, \"<0xA8>\": 9}, \"merges\": " merges "}}"
  const char *files[] = {MODEL("[\"#version: 0.2\", \"b c\", \"a b\"]", ""),
                         MODEL("[[\"b\", \"c\"], [\"a\", \"b\"]]", "")};
  for (int i = 0; i < 2; i++) {
    deltaic_tokenizer *t = parse(files[i]);
    check_encode(t, "abcab", false, "0 4 3");
    assert_string_equal(deltaic_tokenizer_kind(t), "BPE");
    deltaic_tokenizer_close(t);
  }
}

static void ignore_merges_takes_whole_words_first(void **state) {
  deltaic_tokenizer *t = parse(MODEL("[\"b c\"]", ", \"ignore_merges\": true"));
  check_encode(t, "abc", false, "5");
  check_encode(t, "abca", false, "0 4 0");
  deltaic_tokenizer_close(t);
}

static void unknown_characters_are_dropped_fused_or_bytes(void **state) {
  deltaic_tokenizer *t = parse(MODEL("[]", ""));
  check_encode(t, "axyb", false, "0 1");
  deltaic_tokenizer_close(t);
  t = parse(MODEL("[]", ", \"unk_token\": \"<unk>\""));
  check_encode(t, "axyb", false, "0 7 7 1");
  deltaic_tokenizer_close(t);
  t = parse(MODEL("[]", ", \"unk_token\": \"<unk>\", \"fuse_unk\": true"));
  check_encode(t, "axybz", false, "0 7 1 7");
  deltaic_tokenizer_close(t);
  t = parse(MODEL("[]", ", \"unk_token\": \"<unk>\", \"byte_fallback\": true"));
  check_encode(t, "a\u00e8x\u00e9", false, "0 8 9 7 6"); // x has no byte token
  deltaic_tokenizer_close(t);
}

static void postprocessor_adds_tokens_around_the_text(void **state) {
  deltaic_tokenizer *t = parse_part(
      "\"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, {\"type\": "
      "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"B\", \"type_id\": 0}}, {\"Sequence\": "
      "{\"id\": \"A\", \"type_id\": 0}}, {\"SpecialToken\": {\"id\": \"E\", \"type_id\": 0}}], \"special_tokens\": "
      "{\"B\": {\"id\": \"B\", \"ids\": [0, 3], \"tokens\": [\"<s>\", \"c\"]}, \"E\": {\"id\": \"E\", \"ids\": [0], "
      "\"tokens\": [\"<s>\"]}}}]}");
  check_encode(t, "ab", true, "0 3 4 0");
  check_encode(t, "ab", false, "4");
  check_encode(t, "", true, "0 3 0");
  deltaic_tokenizer_close(t);
}

// ---------------------------------------------------------------- arguments and limits

static void small_buffers_are_refused_with_the_size_needed(void **state) {
  deltaic_tokenizer *t = open_file(MODELS_DIR "/novelist");
  int32_t ids[4] = {-7};
  size_t count = 0;
  assert_int_equal(deltaic_tokenizer_encode(t, "Hello", 5, true, NULL, 0, &count), DELTAIC_OK);
  assert_int_equal(count, 4);
  count = 0;
  assert_int_equal(deltaic_tokenizer_encode(t, "Hello", 5, true, ids, 3, &count), DELTAIC_BUFFER_TOO_SMALL);
  assert_int_equal(count, 4);
  assert_int_equal(ids[0], -7);
  assert_int_equal(deltaic_tokenizer_encode(t, "Hello", 5, true, ids, 4, &count), DELTAIC_OK);
  char text[4];
  assert_int_equal(deltaic_tokenizer_decode(t, ids, 4, true, text, 4, &count), DELTAIC_BUFFER_TOO_SMALL);
  assert_int_equal(count, 5);
  assert_int_equal(deltaic_tokenizer_encode(NULL, "", 0, true, NULL, 0, &count), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_tokenizer_encode(t, NULL, 1, true, NULL, 0, &count), DELTAIC_INVALID_ARGUMENT);
  deltaic_tokenizer_close(t);
  deltaic_tokenizer_close(NULL);
}

static void invalid_utf8_is_refused_with_its_place(void **state) {
  deltaic_tokenizer *t = open_file(VECTORS "/bytes.json");
  const char *texts[] = {"abc\xFF", "abc\xC3", "abc\xED\xA0\x80", "abc\xC0\x80", "abc\xF4\x90\x80\x80"};
  for (int i = 0; i < 5; i++) {
    size_t count;
    assert_int_equal(deltaic_tokenizer_encode(t, texts[i], strlen(texts[i]), false, NULL, 0, &count),
                     DELTAIC_INVALID_ARGUMENT);
    char sentence[64];
    snprintf(sentence, sizeof sentence, "byte 4 of the text, 0x%02x, is not UTF-8",
             (unsigned)(unsigned char)texts[i][3]);
    assert_string_equal(deltaic_last_error(), sentence);
  }
  deltaic_tokenizer_close(t);
}

// Of processor time, which clock() does not tell on Windows.
static double seconds_used(void) {
  struct timespec used;
  assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
  return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static double encode_seconds(const deltaic_tokenizer *t, const char *text, size_t bytes, int times) {
  size_t count;
  const double begin = seconds_used();
  for (int i = 0; i < times; i++)
    assert_int_equal(deltaic_tokenizer_encode(t, text, bytes, false, NULL, 0, &count), DELTAIC_OK);
  return seconds_used() - begin;
}

// Linear work takes as long for a text as for its fortieth forty times, and quadratic work forty times as long. Five
// leaves room for caches that do not hold the long text; the clock of Windows has steps of 16 ms.
static void long_words_take_near_linear_time(void **state) {
  const char *paths[] = {MODELS_DIR "/novelist", VECTORS "/sp.json"}, *units[] = {"the", " ", "x", "\u4f60", "\n"};
  enum { TIMES = 40, SMALL = 20000, LARGE = TIMES * SMALL };
  char *text = malloc(LARGE + 8);
  for (int p = 0; p < 2; p++) {
    deltaic_tokenizer *t = open_file(paths[p]);
    for (int u = 0; u < 5; u++) {
      size_t unit = strlen(units[u]);
      for (size_t i = 0; i < LARGE; i += unit) memcpy(text + i, units[u], unit);
      double seconds = encode_seconds(t, text, SMALL / unit * unit, TIMES);
      assert_true(encode_seconds(t, text, LARGE / unit * unit, 1) < 5 * (seconds + 0.016));
    }
    deltaic_tokenizer_close(t);
  }
  free(text);
}

// ---------------------------------------------------------------- refusals

static void check_refused(const char *json, deltaic_status wanted, const char *sentence) {
  deltaic_tokenizer *t = NULL;
  deltaic_status status = tokenizer_parse(json, strlen(json), "tokenizer.json", &t);
  if (status != wanted || !strstr(deltaic_last_error(), sentence))
    print_error("%s\nwanted: %s\ngot: %s\n", json, sentence, deltaic_last_error());
  assert_int_equal(status, wanted);
  assert_non_null(strstr(deltaic_last_error(), sentence));
  assert_int_equal(strncmp(deltaic_last_error(), "tokenizer.json: ", 16), 0);
  assert_null(t);
}

static void malformed_files_are_refused_with_a_sentence(void **state) {
#define VOCAB(vocab, merges) "{\"model\": {\"type\": \"BPE\", \"vocab\": " vocab ", \"merges\": " merges "}}"
#define BAD(json, sentence) check_refused(json, DELTAIC_BAD_FILE, sentence)
  BAD("", "the file is empty");
  BAD("{\"model\": ", "line 1");
  BAD("\xFF\xFE", "line 1");
  BAD("[]", "not a JSON object");
  BAD("{}", "\"model\" is missing or not an object");
  BAD("{\"model\": 3}", "\"model\" is missing or not an object");
  BAD("{\"model\": {\"type\": \"BPE\", \"merges\": []}}", "\"vocab\" is missing or not an object");
  BAD("{\"model\": {\"type\": 1}}", "type must be a string");
  BAD("{\"model\": {\"vocab\": {\"a\": 0}}}", "\"merges\" is missing or not an array");
  BAD(VOCAB("{}", "[]"), "the vocabulary is empty");
  BAD(VOCAB("{\"a\": -1}", "[]"), "token \"a\" has id -1");
  BAD(VOCAB("{\"a\": 4194304}", "[]"), "token \"a\" has id 4194304");
  BAD(VOCAB("{\"a\": 9223372036854775807}", "[]"), "token \"a\" has id 9223372036854775807");
  BAD(VOCAB("{\"a\": 1.5}", "[]"), "the id of token \"a\" is not an integer");
  BAD(VOCAB("{\"a\": 1, \"b\": 1}", "[]"), "tokens \"a\" and \"b\" both have id 1");
  BAD(VOCAB("{\"a\": 0, \"a\": 1}", "[]"), "duplicate");
  BAD(VOCAB("{\"a\": 0}", "[\"a x\"]"), "merge 0 needs \"x\", which is not in the vocabulary");
  BAD(VOCAB("{\"a\": 0, \"b\": 1}", "[[\"a\", \"b\"]]"), "merge 0 needs \"ab\"");
  BAD(VOCAB("{\"a\": 0}", "[\"a\"]"), "merge 0 is not a pair");
  BAD(VOCAB("{\"a\": 0}", "[\"a a a\"]"), "merge 0 is not a pair");
  BAD(VOCAB("{\"a\": 0}", "[[\"a\", 1]]"), "merge 0 is not a pair");
  BAD(VOCAB("{\"a\": 0}", "[[\"a\"]]"), "merge 0 is not a pair");
  BAD(MODEL("[]", ", \"unk_token\": \"?\""), "unk_token \"?\" is not in the vocabulary");
  BAD(MODEL("[]", ", \"unk_token\": 5"), "unk_token must be a string");
  BAD(MODEL("[]", ", \"byte_fallback\": \"yes\""), "byte_fallback must be true or false");
#define PART(part) "{" part ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}}"
  BAD(PART("\"added_tokens\": {}"), "\"added_tokens\" is not an array");
  BAD(PART("\"added_tokens\": [{\"id\": 2}]"), "added token 0 has no \"content\"");
  BAD(PART("\"added_tokens\": [{\"id\": 2, \"content\": \"\"}]"), "added token 0 is empty");
  BAD(PART("\"added_tokens\": [{\"content\": \"c\"}]"), "the id of token \"c\" is not an integer");
  BAD(PART("\"added_tokens\": [{\"id\": 1, \"content\": \"a\"}]"), "its text already has id 0");
  BAD(PART("\"added_tokens\": [{\"id\": 1, \"content\": \"c\"}]"), "tokens \"b\" and \"c\" both have id 1");
  BAD(PART("\"added_tokens\": [{\"id\": 2, \"content\": \"c\", \"lstrip\": 1}]"), "lstrip must be true or false");
  BAD(PART("\"normalizer\": 3"), "a normalizer has no \"type\"");
  BAD(PART("\"normalizer\": {\"type\": \"Sequence\"}"), "a Sequence has no \"normalizers\"");
  BAD(PART("\"normalizer\": {\"type\": \"Prepend\"}"), "normalizer Prepend has no \"prepend\"");
  BAD(PART("\"normalizer\": {\"type\": \"Replace\", \"content\": \"\"}"), "neither a String nor a Regex");
  BAD(PART("\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"(a\"}}"),
      "the pattern \"(a\" is wrong at character 2");
  BAD(PART("\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"ab\"}"), "is not one character");
  BAD(PART("\"decoder\": {\"type\": \"Strip\", \"content\": \" \", \"start\": -1}"), "start is -1");
  BAD(PART("\"decoder\": {\"type\": \"Replace\"}"), "decoder Replace has no \"content\"");
  BAD(PART("\"post_processor\": {\"type\": \"TemplateProcessing\"}"), "\"single\" is missing");
#define TEMPLATE(special)                                                                                              \
  PART("\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"S\"}}], "    \
       "\"special_tokens\": {" special "}}")
  BAD(TEMPLATE(""), "the post_processor names \"S\", but has no ids for it");
  BAD(TEMPLATE("\"S\": {\"ids\": [7]}"), "the post_processor's \"S\" has an id that no token has");
  BAD(TEMPLATE("\"S\": {\"ids\": [-1]}"), "the post_processor's \"S\" has an id that no token has");
  BAD(PART("\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"B\"}}]}"),
      "neither a token nor sequence A");
}

static void unsupported_features_are_refused_by_name(void **state) {
#define NO(json, sentence) check_refused(json, DELTAIC_UNSUPPORTED, sentence)
  NO("{\"model\": {\"type\": \"Unigram\"}}", "model type \"Unigram\" is not supported");
  NO("{\"model\": {\"type\": \"WordPiece\"}}", "model type \"WordPiece\" is not supported");
  NO("{\"version\": \"2.0\", \"model\": {}}", "version 2.0 is not supported");
  NO(MODEL("[]", ", \"dropout\": 0.1"), "dropout is not supported");
  NO(MODEL("[]", ", \"end_of_word_suffix\": \"</w>\""), "end_of_word_suffix \"</w>\" is not supported");
  NO(MODEL("[]", ", \"continuing_subword_prefix\": \"##\""), "continuing_subword_prefix \"##\" is not supported");
  NO(PART("\"normalizer\": {\"type\": \"Precompiled\"}"), "normalizer \"Precompiled\" is not supported");
  NO(PART("\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}"), "pre_tokenizer \"UnicodeScripts\" is not supported");
  NO(PART("\"decoder\": {\"type\": \"CTC\"}"), "decoder \"CTC\" is not supported");
  NO(PART("\"post_processor\": {\"type\": \"BertProcessing\"}"), "post_processor \"BertProcessing\" is not supported");
#define REGEX(regex)                                                                                                   \
  PART("\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"" regex "\"}"  \
       "}")
  NO(REGEX("[a[b]]"), "a set inside a set");
  NO(REGEX("[a-z&&b]"), "&& in a set");
  NO(REGEX("\\\\h+"), "\\h in the pattern");
  NO(PART("\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Sideways\", \"pattern\": {\"String\": \"a\"}}"),
     "split behavior \"Sideways\" is not supported");
  NO(PART("\"normalizer\": {\"type\": \"Replace\", \"content\": \"\", \"pattern\": {\"String\": \"\"}}"),
     "an empty pattern");
}

static void missing_files_are_not_found(void **state) {
  deltaic_tokenizer *t;
  assert_int_equal(deltaic_tokenizer_open(VECTORS "/none.json", &t), DELTAIC_NOT_FOUND);
  assert_int_equal(deltaic_tokenizer_open(TESTS_DIR, &t), DELTAIC_NOT_FOUND);
  assert_non_null(strstr(deltaic_last_error(), "/tokenizer.json: "));
  assert_int_equal(deltaic_tokenizer_open(NULL, &t), DELTAIC_INVALID_ARGUMENT);
}

static void growing_steps_are_stopped(void **state) {
  char json[8192] = "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [";
  const char *twice = "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aa\"}";
  for (int i = 0; i < 40; i++) snprintf(json + strlen(json), 200, "%s%s", i ? "," : "", twice);
  strcat(json, "]}, \"decoder\": {\"type\": \"Sequence\", \"decoders\": [");
  for (int i = 0; i < 40; i++) snprintf(json + strlen(json), 200, "%s%s", i ? "," : "", twice);
  strcat(json, "]}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}");
  deltaic_tokenizer *t = parse(json);
  size_t count;
  assert_int_equal(deltaic_tokenizer_encode(t, "a", 1, false, NULL, 0, &count), DELTAIC_OUT_OF_MEMORY);
  assert_int_equal(deltaic_tokenizer_decode(t, &(int32_t){0}, 1, false, NULL, 0, &count), DELTAIC_UNSUPPORTED);
  deltaic_tokenizer_close(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(byte_level_bpe_matches_gpt2s_algorithm),
                                     cmocka_unit_test(byte_fallback_bpe_matches_huggingface),
                                     cmocka_unit_test(bytes_without_merges_match_huggingface),
                                     cmocka_unit_test(kind_size_and_find_describe_the_file),
                                     cmocka_unit_test(gpt2_words_are_contractions_letters_numbers_others),
                                     cmocka_unit_test(llama3_words_have_numbers_of_three_and_a_leading_mark),
                                     cmocka_unit_test(qwen_words_have_single_digits),
                                     cmocka_unit_test(normalizers_rewrite_the_text),
                                     cmocka_unit_test(split_puts_delimiters_where_the_behavior_says),
                                     cmocka_unit_test(simple_pretokenizers_cut_by_class),
                                     cmocka_unit_test(byte_level_writes_bytes_as_characters),
                                     cmocka_unit_test(metaspace_prepends_by_its_scheme),
                                     cmocka_unit_test(added_tokens_take_spaces_and_mind_words),
                                     cmocka_unit_test(special_tokens_can_be_left_out_of_the_text),
                                     cmocka_unit_test(merges_come_in_two_formats),
                                     cmocka_unit_test(ignore_merges_takes_whole_words_first),
                                     cmocka_unit_test(unknown_characters_are_dropped_fused_or_bytes),
                                     cmocka_unit_test(postprocessor_adds_tokens_around_the_text),
                                     cmocka_unit_test(small_buffers_are_refused_with_the_size_needed),
                                     cmocka_unit_test(invalid_utf8_is_refused_with_its_place),
                                     cmocka_unit_test(long_words_take_near_linear_time),
                                     cmocka_unit_test(malformed_files_are_refused_with_a_sentence),
                                     cmocka_unit_test(unsupported_features_are_refused_by_name),
                                     cmocka_unit_test(missing_files_are_not_found),
                                     cmocka_unit_test(growing_steps_are_stopped)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
