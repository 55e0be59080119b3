// eval_made: generates tests: multi-query associative recall, words of groups, parity and modular arithmetic. Tokens
// are words separated by single spaces, so any tokenizer can read them; the checkpoints of the demos (docs/demos.md)
// have exactly these tokens.
#include "eval_made.h"
#include "common.h"
#include "demo_groups.h"
#include "sha256.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- words

struct line {
  char *text;
  size_t length, capacity;
};

// Adds a case {"context", "target" or "contains", ...}, which it frees. It returns an exit code.
static int add_case(struct maker *m, json_t *record, uint32_t length) {
  if (!record) return m->code ? m->code : complain(EXIT_FAILED, "out of memory: a case could not be made");
  json_object_set_new(record, "group", json_integer(length));
  json_object_set_new(record, "whole", json_true());
  char *text = json_dumps(record, JSON_COMPACT);
  errno = 0;
  if (text) {
    sha256_add(m->hash, text, strlen(text));
    sha256_add(m->hash, "\n", 1);
    if (m->stream && (fputs(text, m->stream) == EOF || fputc('\n', m->stream) == EOF))
      m->code = complain(EXIT_FAILED, "--write: %s", errno_text(errno));
  }
  free(text);
  if (!m->code) m->code = eval_task_add_json(m->task, record);
  json_decref(record);
  return m->code;
}

static void add_word(struct line *l, const char *word) {
  size_t n = strlen(word);
  if (l->length + n + 2 > l->capacity) {
    l->capacity = 2 * (l->length + n) + 64;
    l->text = must_resize(l->text, l->capacity);
  }
  if (l->length) l->text[l->length++] = ' ';
  memcpy(l->text + l->length, word, n + 1);
  l->length += n;
}

static void add_number(struct line *l, const char *before, uint32_t number) {
  char word[24];
  snprintf(word, sizeof word, "%s%u", before, number);
  add_word(l, word);
}

// Takes ownership of the line.
static json_t *ask(struct line *l, const char *answer) {
  char target[40];
  snprintf(target, sizeof target, " %s", answer);
  json_t *record = json_pack("{s:s, s:s}", "context", l->text, "target", target);
  free(l->text);
  return record;
}

// ---------------------------------------------------------------- mqar: pairs of a key and a value, then a key

static int mqar_begin(struct maker *m) {
  const struct made_options *o = m->options;
  if (o->pairs > o->keys) return complain(EXIT_USAGE, "--pairs %u needs as many --keys, not %u", o->pairs, o->keys);
  for (size_t i = 0; i < o->lengths.count; ++i) {
    uint64_t length = o->lengths.values[i], least = 2 * (uint64_t)o->pairs * o->writes + 1;
    if (length < least)
      return complain(EXIT_USAGE, "--length %u is too short for --pairs %u: they and a key are %llu tokens",
                      o->lengths.values[i], o->pairs, (unsigned long long)least);
    if (length > least && o->pairs == o->keys)
      return complain(EXIT_USAGE, "--length %u needs --keys above --pairs: other keys fill the text",
                      o->lengths.values[i]);
  }
  return EXIT_OK;
}

static void shuffle(uint32_t *x, uint32_t n, uint64_t *seed) {
  for (uint32_t i = n; i > 1; --i) {
    uint32_t k = random_below(seed, i), kept = x[i - 1];
    x[i - 1] = x[k];
    x[k] = kept;
  }
}

// Every key is written `writes` times; its last value is the answer. Each key of the text is queried after the same
// context: all pairs and the keys between them.
static int mqar_texts(struct maker *m, uint32_t length) {
  const struct made_options *o = m->options;
  uint32_t *keys = must_resize(NULL, o->keys * sizeof *keys), *values = must_resize(NULL, o->pairs * sizeof *values);
  struct line text = {0};
  for (uint32_t i = 0; i < o->keys; ++i) keys[i] = i;
  shuffle(keys, o->keys, &m->random);
  for (uint32_t w = 0; w < o->writes; ++w) {
    shuffle(keys, o->pairs, &m->random);
    for (uint32_t i = 0; i < o->pairs; ++i) {
      values[i] = random_below(&m->random, o->values);
      add_number(&text, "k", keys[i]);
      add_number(&text, "v", values[i]);
    }
  }
  for (uint32_t i = 2 * o->pairs * o->writes; i + 1 < length; ++i)
    add_number(&text, "k", keys[o->pairs + random_below(&m->random, o->keys - o->pairs)]);
  for (uint32_t i = 0; i < o->pairs && !m->code; ++i) {
    struct line question = {0};
    char answer[24];
    add_word(&question, text.text);
    add_number(&question, "k", keys[i]);
    snprintf(answer, sizeof answer, "v%u", values[i]);
    m->code = add_case(m, ask(&question, answer), length);
  }
  free(text.text);
  free(keys);
  free(values);
  return m->code;
}

// ---------------------------------------------------------------- group: the product of a word's elements

static int group_begin(struct maker *m) {
  struct group g;
  if (!group_make(m->options->group, false, &g))
    return complain(EXIT_USAGE, "there is no group \"%s\"; S2 to S6, A5, Z2 to Z1024, D3 to D512", m->options->group);
  group_free(&g);
  return EXIT_OK;
}

static json_t *group_text(struct maker *m, uint32_t length) {
  struct group g;
  struct line text = {0};
  uint32_t product = 0;
  if (!group_make(m->options->group, false, &g)) return NULL; // cannot fail: group_begin has checked the name
  for (uint32_t i = 0; i < length; ++i) {
    uint32_t element = random_below(&m->random, g.order);
    product = group_after(&g, element, product);
    add_word(&text, g.names[element]);
  }
  json_t *record = ask(&text, g.names[product]);
  group_free(&g);
  return record;
}

// ---------------------------------------------------------------- parity: whether the number of ones is odd

static json_t *parity_text(struct maker *m, uint32_t length) {
  struct line text = {0};
  uint32_t sum = 0;
  for (uint32_t i = 0; i < length; ++i) {
    uint32_t bit = random_below(&m->random, 2);
    sum ^= bit;
    add_number(&text, "", bit);
  }
  return ask(&text, sum ? "1" : "0");
}

// ---------------------------------------------------------------- arithmetic modulo a number

static uint32_t apply(uint32_t a, char operation, uint32_t b, uint32_t modulus) {
  uint64_t x = a, y = b;
  return (uint32_t)((operation == '*' ? x * y : operation == '+' ? x + y : x + modulus - y) % modulus);
}

static char random_operation(struct maker *m, struct line *text) {
  const char *operations = "+-*";
  char word[2] = {operations[random_below(&m->random, 3)], 0};
  add_word(text, word);
  return word[0];
}

static uint32_t random_number(struct maker *m, struct line *text) {
  uint32_t number = random_below(&m->random, m->options->modulus);
  add_number(text, "", number);
  return number;
}

static json_t *ask_number(struct line *text, uint32_t number) {
  char answer[16];
  add_word(text, "=");
  snprintf(answer, sizeof answer, "%u", number);
  return ask(text, answer);
}

// Multiplications come before additions: the state is sum +- product, where the product may still grow.
static json_t *modular_text(struct maker *m, uint32_t length) {
  struct line text = {0};
  uint32_t modulus = m->options->modulus, sum = 0, product = random_number(m, &text);
  char before = '+';
  for (uint32_t i = 1; i < length / 2; ++i) {
    char operation = random_operation(m, &text);
    uint32_t number = random_number(m, &text);
    if (operation == '*') {
      product = apply(product, '*', number, modulus);
      continue;
    }
    sum = apply(sum, before, product, modulus);
    before = operation;
    product = number;
  }
  return ask_number(&text, apply(sum, before, product, modulus));
}

static uint32_t expression(struct maker *m, struct line *text, uint32_t numbers) {
  if (numbers == 1) return random_number(m, text);
  uint32_t left = 1 + random_below(&m->random, numbers - 1);
  add_word(text, "(");
  uint32_t a = expression(m, text, left);
  char operation = random_operation(m, text);
  uint32_t b = expression(m, text, numbers - left);
  add_word(text, ")");
  return apply(a, operation, b, m->options->modulus);
}

static json_t *brackets_text(struct maker *m, uint32_t length) {
  struct line text = {0};
  uint32_t value = expression(m, &text, (length + 2) / 4); // n numbers are 4 n - 2 tokens with "="
  return ask_number(&text, value);
}

// Limits the lengths, because the recursion is as deep as the expression tree.
static int modular_begin(struct maker *m) {
  for (size_t i = 0; i < m->options->lengths.count; ++i)
    if (m->options->lengths.values[i] < 2 || m->options->lengths.values[i] > 100000)
      return complain(EXIT_USAGE, "--length %u: expressions have 2 to 100000 tokens", m->options->lengths.values[i]);
  return EXIT_OK;
}

// ---------------------------------------------------------------- the table

#define LENGTHS(...)                                                                                                   \
  { .values = {__VA_ARGS__}, .count = sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t) }

static const struct made makers[] = {
    {.name = "mqar",
     .about = "multi-query associative recall: --pairs of a key and a value, other keys, then each key",
     .lengths = LENGTHS(64, 128, 256, 512),
     .own = "pairs keys values writes",
     .begin = mqar_begin,
     .texts = mqar_texts},
    {.name = "niah-1",
     .about = "RULER's S-NIAH-1: a number in repeated text",
     .lengths = LENGTHS(1024, 2048, 4096),
     .new_tokens = 128,
     .own = "new",
     .begin = needle_begin,
     .text = needle_number},
    {.name = "niah-2",
     .about = "S-NIAH-2: a number in the real text of --data",
     .lengths = LENGTHS(1024, 2048, 4096),
     .new_tokens = 128,
     .own = "new data",
     .begin = needle_begin,
     .text = needle_number},
    {.name = "niah-3",
     .about = "S-NIAH-3: a UUID in the real text of --data",
     .lengths = LENGTHS(1024, 2048, 4096),
     .new_tokens = 128,
     .own = "new data",
     .begin = needle_begin,
     .text = needle_uuid},
    {.name = "group",
     .about = "the product of a word's elements of --group",
     .lengths = LENGTHS(16, 64, 256, 1024),
     .own = "group",
     .begin = group_begin,
     .text = group_text},
    {.name = "parity",
     .about = "whether the ones among zeros are odd in number",
     .lengths = LENGTHS(16, 64, 256, 1024),
     .text = parity_text},
    {.name = "modular",
     .about = "sums and products modulo --modulus",
     .lengths = LENGTHS(16, 64, 256),
     .own = "modulus",
     .begin = modular_begin,
     .text = modular_text},
    {.name = "modular-brackets",
     .about = "the same with brackets",
     .lengths = LENGTHS(16, 64, 256),
     .own = "modulus",
     .begin = modular_begin,
     .text = brackets_text},
};
enum { MAKERS = sizeof makers / sizeof *makers };

const struct made *made_find(const char *name) {
  for (size_t i = 0; i < MAKERS; ++i)
    if (!strcmp(makers[i].name, name)) return &makers[i];
  return NULL;
}

const struct made *made_at(size_t i) { return i < MAKERS ? &makers[i] : NULL; }

// ---------------------------------------------------------------- a task

// Applies SplitMix64's last steps, which give adjacent numbers different states.
static uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static int make_texts(struct maker *m, const struct made *made) {
  for (size_t i = 0; i < m->options->lengths.count; ++i)
    for (uint32_t n = 0; n < m->options->cases && !m->code; ++n) {
      uint32_t length = m->options->lengths.values[i];
      m->random = mixed(mixed(mixed(m->options->seed) + length) + n); // a text does not depend on the others
      m->code = made->texts ? made->texts(m, length) : add_case(m, made->text(m, length), length);
      if (!m->code && interrupted()) m->code = complain_work(DELTAIC_OK);
    }
  return m->code;
}

// Describes everything that the texts depend on.
static json_t *describe(const struct made *made, const struct made_options *o) {
  json_t *lengths = json_array();
  for (size_t i = 0; i < o->lengths.count; ++i) json_array_append_new(lengths, json_integer(o->lengths.values[i]));
  return json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s?}", "task", made->name, "lengths", lengths,
                   "cases", (json_int_t)o->cases, "seed", (json_int_t)o->seed, "pairs", (json_int_t)o->pairs, "keys",
                   (json_int_t)o->keys, "values", (json_int_t)o->values, "writes", (json_int_t)o->writes, "modulus",
                   (json_int_t)o->modulus, "group", o->group, "data", o->haystack);
}

int made_task(const struct made *made, const struct made_options *options, const char *path, struct eval_task *task) {
  struct made_options o = *options;
  struct sha256 hash;
  struct maker m = {.options = &o, .task = task, .hash = &hash};
  if (!o.lengths.count) o.lengths = made->lengths;
  sha256_begin(&hash);
  snprintf(task->name, sizeof task->name, "%s%s%s", made->name, made->begin == group_begin ? " " : "",
           made->begin == group_begin ? o.group : "");
  task->lengths = true;
  task->recipe = describe(made, &o);
  interrupt_catch();
  int code = made->begin ? made->begin(&m) : EXIT_OK;
  struct new_file file = {0};
  if (!code && path) code = output_begin(&file, path);
  m.stream = file.stream;
  if (!code) code = make_texts(&m, made);
  if (m.stream) code = output_end(&file, path, code);
  sha256_end(&hash, task->hash);
  deltaic_tokenizer_close(m.tokenizer);
  free(m.haystack);
  return code;
}
