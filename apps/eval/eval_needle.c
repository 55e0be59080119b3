// eval_needle: makes RULER's single needles in a haystack (Hsieh et al. 2024) in the wording of lm-evaluation-harness's
// niah_single_1 to 3: a sentence with a key and a value among others, and a question for the value.
#include "common.h"
#include "eval_made.h"
#include "eval_text.h"

#include <stdlib.h>
#include <string.h>

enum { ANSWER_TOKENS = 128, DEPTHS = 40 };

static const char repeated[] =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

static const char *const adjectives[] = {"amber", "brave", "calm",   "dusty", "eager",  "faint", "gentle", "hollow",
                                         "icy",   "jolly", "keen",   "lofty", "mellow", "noble", "odd",    "plain",
                                         "quiet", "rusty", "silent", "tidy",  "upper",  "vivid", "warm",   "young"};
static const char *const nouns[] = {"anchor", "bridge", "candle", "desert", "engine", "forest", "garden",  "harbour",
                                    "island", "jacket", "kettle", "ladder", "market", "needle", "orchard", "pillow",
                                    "quarry", "ribbon", "saddle", "temple", "urchin", "valley", "window",  "yeoman"};

// Replaces each run of white space by one space.
static void squeeze(char *text) {
  const char *end = text + strlen(text);
  char *out = text;
  while (text < end) {
    size_t n = space_at_begin(text, end - text < 8 ? (size_t)(end - text) : 8);
    if (n) {
      if (out[-1] != ' ') *out++ = ' ';
      text += n;
    } else
      *out++ = *text++;
  }
  *out = 0;
}

static int read_haystack(struct maker *m) {
  size_t bytes;
  if (!m->options->haystack) return EXIT_OK;
  char *text = file_read(m->options->haystack, &bytes);
  if (!text) return EXIT_FAILED;
  size_t wrong = utf8_error(text, bytes);
  if (wrong < bytes || strlen(text) < bytes) {
    free(text);
    return complain(EXIT_FAILED, "%s: byte %zu is not UTF-8 text", m->options->haystack, wrong + 1);
  }
  m->haystack = text_strip(text);
  free(text);
  if (*m->haystack) squeeze(m->haystack);
  return *m->haystack ? EXIT_OK : complain(EXIT_FAILED, "%s: there is no text in it", m->options->haystack);
}

int needle_begin(struct maker *m) {
  const char *checkpoint = model_path(m->options->checkpoint);
  if (!checkpoint) return EXIT_USAGE;
  int code = tokenizer_open(checkpoint, &m->tokenizer);
  return code ? code : read_haystack(m);
}

// ---------------------------------------------------------------- haystacks

// Returns the offset after `words` words.
static size_t after_words(const char *text, size_t words) {
  const char *p = text;
  for (; *p && words; --words) p += strcspn(p, " ") + (words > 1 && p[strcspn(p, " ")]);
  return (size_t)(p - text);
}

static size_t count_words(const char *text) {
  size_t words = *text != 0;
  for (; *text; ++text) words += *text == ' ';
  return words;
}

static bool ends_sentence(const char *p) { return strchr(".!?", *p) && *p && p[1] == ' '; }

// Builds the first `bytes` of the text with the needle after `depth` 39ths of its sentences.
static char *hide_in_text(const char *text, size_t bytes, const char *needle, uint32_t depth) {
  size_t sentences = 1, at = 0, length = strlen(needle);
  for (size_t i = 0; i + 1 < bytes; ++i) sentences += ends_sentence(text + i);
  size_t place = sentences * depth / (DEPTHS - 1);
  for (size_t seen = 0; at < bytes && seen < place; ++at)
    if (at + 1 < bytes && ends_sentence(text + at) && ++seen == place) break;
  at = !place ? 0 : at + 1 < bytes ? at + 2 : bytes; // after the sentence's space
  char *out = must_resize(NULL, bytes + length + 3);
  int used = sprintf(out, "%.*s%s%s%s", (int)at, text, at == bytes && at ? " " : "", needle, at < bytes ? " " : "");
  memcpy(out + used, text + at, bytes - at);
  out[(size_t)used + bytes - at] = 0;
  return out;
}

// Builds lines of the same sentences with the needle before line `place`.
static char *hide_in_lines(size_t lines, const char *needle, size_t place) {
  char *out = must_resize(NULL, lines * sizeof repeated + strlen(needle) + 2), *p = out;
  for (size_t i = 0; i < lines; ++i) {
    if (i == place) p += sprintf(p, "%s\n", needle);
    p += sprintf(p, "%s%s", repeated, i + 1 < lines ? "\n" : "");
  }
  return out;
}

// ---------------------------------------------------------------- a case

struct needle {
  const char *kind; // "number"
  char key[40], value[40];
  uint32_t place; // a random position
};

static char *prompt(const struct maker *m, const struct needle *n, size_t units) {
  char sentence[160], *hidden;
  snprintf(sentence, sizeof sentence, "One of the special magic %ss for %s is: %s.", n->kind, n->key, n->value);
  if (m->haystack)
    hidden = hide_in_text(m->haystack, after_words(m->haystack, units), sentence, n->place % DEPTHS);
  else
    hidden = hide_in_lines(units, sentence, n->place % units);
  size_t capacity = strlen(hidden) + 600;
  char *out = must_resize(NULL, capacity);
  snprintf(out, capacity,
           "A special magic %s is hidden within the following text. Make sure to memorize it. I will quiz you about "
           "the %s afterwards.\n%s\nWhat is the special magic %s for %s mentioned in the provided text? The special "
           "magic %s for %s mentioned in the provided text is",
           n->kind, n->kind, hidden, n->kind, n->key, n->kind, n->key);
  free(hidden);
  return out;
}

static size_t count_tokens(struct maker *m, const struct needle *n, size_t units) {
  char *text = prompt(m, n, units);
  size_t count = 0;
  int code = complain_status(deltaic_tokenizer_encode(m->tokenizer, text, strlen(text), true, NULL, 0, &count));
  if (code) m->code = code;
  free(text);
  return count;
}

// Finds the largest number of units that leaves room for the answer, to within 1/128 of the length. It extrapolates
// from the tokens per unit so far, because tokenizing a long text is slow.
static size_t find_units(struct maker *m, const struct needle *n, uint32_t length) {
  // A word has at least one token, and a line of repeated sentences more than eight.
  size_t words = m->haystack ? count_words(m->haystack) : SIZE_MAX, most = m->haystack ? length : length / 8 + 1;
  size_t least = 1, base = count_tokens(m, n, 1), have = base;
  double rate = m->haystack ? 1.5 : 25; // tokens per unit
  if (most > words) most = words;
  if (have + ANSWER_TOKENS > length) return 0;
  while (least < most && length - ANSWER_TOKENS - have > length / 128 && !m->code) {
    size_t more = (size_t)((double)(length - ANSWER_TOKENS - have) / rate), middle = least + (more ? more : 1);
    if (middle > most) middle = most;
    size_t tokens = count_tokens(m, n, middle);
    rate = (double)(tokens - base) / (double)(middle - 1);
    if (rate < 1) rate = 1;
    if (tokens + ANSWER_TOKENS > length)
      most = middle - 1;
    else {
      least = middle;
      have = tokens;
    }
  }
  if (least == words && have + ANSWER_TOKENS + length / 128 < length && !m->code)
    m->code = complain(EXIT_FAILED, "%s: too short for --length %u", m->options->haystack, length);
  return least;
}

static json_t *make_needle(struct maker *m, uint32_t length, struct needle *n) {
  snprintf(n->key, sizeof n->key, "%s-%s", adjectives[random_below(&m->random, sizeof adjectives / sizeof *adjectives)],
           nouns[random_below(&m->random, sizeof nouns / sizeof *nouns)]);
  n->place = random_below(&m->random, 1u << 30);
  size_t units = find_units(m, n, length);
  if (m->code) return NULL;
  if (!units) {
    m->code = complain(EXIT_USAGE, "--length %u is too short: the question alone and %d tokens for the answer are more",
                       length, ANSWER_TOKENS);
    return NULL;
  }
  char *text = prompt(m, n, units);
  json_t *record = json_pack("{s:s, s:s}", "context", text, "contains", n->value);
  free(text);
  return record;
}

static void make_number(struct maker *m, struct needle *n) {
  n->kind = "number";
  snprintf(n->value, sizeof n->value, "%u", 1000000 + random_below(&m->random, 9000000));
}

json_t *needle_number(struct maker *m, uint32_t length) {
  struct needle n;
  make_number(m, &n);
  return make_needle(m, length, &n);
}

// A version 4 UUID: all bits but six are random.
json_t *needle_uuid(struct maker *m, uint32_t length) {
  struct needle n = {.kind = "uuid"};
  uint32_t x[8];
  for (int i = 0; i < 8; ++i) x[i] = random_below(&m->random, 1u << 16);
  snprintf(n.value, sizeof n.value, "%04x%04x-%04x-4%03x-%04x-%04x%04x%04x", x[0], x[1], x[2], x[3] & 0xfff,
           (x[4] & 0x3fff) | 0x8000, x[5], x[6], x[7]);
  return make_needle(m, length, &n);
}
