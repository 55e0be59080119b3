// eval_shapes: describes prompts and answers of known data sets, as lm-evaluation-harness's tasks of these names do.
#include "eval_shapes.h"
#include "common.h"
#include "eval_text.h"

#include <stdlib.h>
#include <string.h>

static const struct shape shapes[] = {
    {.name = "lambada",
     .about = "the last word of a passage: lambada_openai's JSONL, or lambada_standard's plain lines",
     .kind = EVAL_CLOZE,
     .context = "{text:before_last}",
     .choices = {" {text:last}"},
     .lines = true},
    {.name = "wikitext",
     .about = "perplexity per word and byte: wiki.test.raw, or JSONL with \"page\"",
     .kind = EVAL_ROLLING,
     .choices = {"{page}"},
     .documents = true},
    {.name = "piqa",
     .about = "valid.jsonl beside valid-labels.lst, or with \"label\"",
     .kind = EVAL_CHOICE,
     .context = "Question: {goal}\nAnswer:",
     .choices = {"{sol1}", "{sol2}"},
     .gold = "label",
     .labels = "-labels.lst"},
    {.name = "hellaswag",
     .about = "hellaswag_val.jsonl",
     .kind = EVAL_CHOICE,
     .context = "{activity_label}: {ctx_a} {ctx_b:capitalize}",
     .context_filter = "wikihow",
     .list = "endings[]",
     .list_filter = "wikihow",
     .gold = "label"},
    {.name = "winogrande",
     .about = "dev.jsonl",
     .kind = EVAL_CHOICE,
     .contexts = {"{sentence:before_gap}{option1}", "{sentence:before_gap}{option2}"},
     .choices = {"{sentence:after_gap}"},
     .gold = "answer",
     .base = 1},
    {.name = "arc",
     .about = "ARC-Easy-Test.jsonl or ARC-Challenge-Test.jsonl",
     .kind = EVAL_CHOICE,
     .context = "Question: {question.stem|question}\nAnswer:",
     .list = "question.choices[].text|choices.text[]",
     .gold = "answerKey",
     .names = "question.choices[].label|choices.label[]"},
    {.name = "boolq",
     .about = "SuperGLUE's val.jsonl or the authors' dev.jsonl",
     .kind = EVAL_CHOICE,
     .context = "{passage}\nQuestion: {question}?\nAnswer:",
     .choices = {"no", "yes"},
     .gold = "label|answer"},
    {.name = "siqa",
     .about = "dev.jsonl beside dev-labels.lst, or with \"label\", or with v1.4's \"correct\"",
     .kind = EVAL_CHOICE,
     .context = "Q: {context} {question}\nA:",
     .choices = {"{answerA}", "{answerB}", "{answerC}"},
     .gold = "label|correct",
     .base = 1,
     .labels = "-labels.lst"},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

const struct shape *shape_find(const char *name) {
  for (size_t i = 0; i < SHAPES; ++i)
    if (!strcmp(shapes[i].name, name)) return &shapes[i];
  return NULL;
}

const struct shape *shape_at(size_t i) { return i < SHAPES ? &shapes[i] : NULL; }

// ---------------------------------------------------------------- paths

// Follows keys up to the path's end, "|" or "[]". *rest receives the remaining path.
static const json_t *follow_keys(const json_t *value, const char *path, const char **rest) {
  while (*path && *path != '|' && *path != '[') {
    size_t n = strcspn(path, ".|[");
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)n, path);
    value = json_object_get(value, key);
    path += n;
    if (*path == '.') ++path;
  }
  *rest = path;
  return value;
}

static const char *next_alternative(const char *path) {
  const char *bar = strchr(path, '|');
  return bar ? bar + 1 : NULL;
}

// A path does not select an object: "question.stem|question" skips question if it is one.
static const json_t *find_value(const json_t *record, const char *path) {
  for (const char *rest; path; path = next_alternative(path)) {
    const json_t *value = follow_keys(record, path, &rest);
    if (value && !json_is_object(value)) return value;
  }
  return NULL;
}

// Returns the list of a path with [], and sets what follows [] for each item: "" or ".text".
static const json_t *find_list(const json_t *record, const char *path, const char **inside) {
  for (const char *rest; path; path = next_alternative(path)) {
    const json_t *value = follow_keys(record, path, &rest);
    *inside = rest + 2;
    if (json_is_array(value)) return value;
  }
  return NULL;
}

static const json_t *list_item(const json_t *list, size_t i, const char *inside) {
  const char *rest;
  return follow_keys(json_array_get(list, i), inside + (*inside == '.'), &rest);
}

// ---------------------------------------------------------------- filters

static char *before_last(const char *text) { // joins all but the last of text.split(" ")
  const char *space = strrchr(text, ' ');
  return text_copy(text, space ? (size_t)(space - text) : 0);
}
static char *last(const char *text) {
  const char *space = strrchr(text, ' ');
  return text_copy(space ? space + 1 : text, strlen(space ? space + 1 : text));
}
static char *before_gap(const char *text) { return text_copy(text, strcspn(text, "_")); }
static char *after_gap(const char *text) {
  size_t n = strcspn(text, "_");
  return text_strip(text + n + (text[n] == '_'));
}

static const struct {
  const char *name;
  char *(*apply)(const char *text);
} filters[] = {{"before_last", before_last}, {"last", last},
               {"before_gap", before_gap},   {"after_gap", after_gap},
               {"wikihow", text_wikihow},    {"capitalize", text_capitalize}};

// Takes ownership of the text.
static char *filtered(char *text, const char *name, size_t length) {
  for (size_t i = 0; text && name && i < sizeof filters / sizeof *filters; ++i)
    if (strlen(filters[i].name) == length && !memcmp(filters[i].name, name, length)) {
      char *out = filters[i].apply(text);
      free(text);
      return out;
    }
  return text;
}

// ---------------------------------------------------------------- templates

struct reading {
  const json_t *record;
  char *problem; // (120)
};

// Expands {path:filter}, given without the braces.
static char *fill_value(struct reading *r, const char *field, size_t length) {
  const char *colon = memchr(field, ':', length);
  size_t path_length = colon ? (size_t)(colon - field) : length;
  char path[96];
  snprintf(path, sizeof path, "%.*s", (int)path_length, field);
  const json_t *value = find_value(r->record, path);
  if (!json_is_string(value)) {
    snprintf(r->problem, 120, value ? "\"%.60s\" is not a text" : "there is no \"%.60s\"", path);
    return NULL;
  }
  if (strlen(json_string_value(value)) != json_string_length(value)) {
    snprintf(r->problem, 120, "\"%.60s\" contains a NUL character", path);
    return NULL;
  }
  char *text = text_copy(json_string_value(value), json_string_length(value));
  return colon ? filtered(text, colon + 1, length - path_length - 1) : text;
}

// Returns NULL after setting `problem`.
static char *fill_template(struct reading *r, const char *template) {
  char *out = text_copy("", 0);
  size_t used = 0;
  while (*template && out) {
    bool field = *template == '{';
    size_t n = strcspn(template + field, field ? "}" : "{");
    char *value = field ? fill_value(r, template + 1, n) : text_copy(template, n);
    size_t length = value ? strlen(value) : 0;
    if (value) {
      out = must_resize(out, used + length + 1);
      memcpy(out + used, value, length + 1);
      used += length;
    } else {
      free(out);
      out = NULL;
    }
    free(value);
    template += n + 2 * field;
  }
  return out;
}

static bool set_text(struct reading *r, const char *template, const char *filter, struct eval_text *out) {
  char *text = filtered(fill_template(r, template), filter, filter ? strlen(filter) : 0);
  if (!text) return false;
  *out = (struct eval_text){.text = text, .count = strlen(text)};
  return true;
}

// Sets the choice's text, and the continuation: a space and that text.
static void set_choice(struct eval_choice *choice, char *text) {
  size_t length = strlen(text);
  choice->characters = (uint32_t)utf8_characters(text, length);
  choice->bytes = (uint32_t)length;
  choice->text = (struct eval_text){.text = must_resize(NULL, length + 2), .count = length + 1};
  choice->text.text[0] = ' ';
  memcpy(choice->text.text + 1, text, length + 1);
  free(text);
}

// ---------------------------------------------------------------- cases

static bool read_list(struct reading *r, const struct shape *s, const json_t *list, const char *inside,
                      struct eval_case *c) {
  for (size_t i = 0; i < c->choices; ++i) {
    const json_t *item = list_item(list, i, inside);
    if (!json_is_string(item)) return snprintf(r->problem, 120, "choice %zu is not a text", i + 1), false;
    char *text = text_copy(json_string_value(item), strlen(json_string_value(item)));
    set_choice(&c->choice[i], filtered(text, s->list_filter, s->list_filter ? strlen(s->list_filter) : 0));
  }
  return true;
}

static bool read_choices(struct reading *r, const struct shape *s, struct eval_case *c) {
  for (size_t i = 0; i < c->choices; ++i) {
    char *text = fill_template(r, s->choices[s->contexts[0] ? 0 : i]);
    if (!text) return false;
    if (s->contexts[0] && !set_text(r, s->contexts[i], NULL, &c->choice[i].context)) return free(text), false;
    set_choice(&c->choice[i], text);
  }
  return true;
}

// Finds the gold in `names`, or reads its number; some copies of the data sets have words or letters instead.
static long gold_number(const struct shape *s, const json_t *record, const char *gold) {
  const char *inside;
  const json_t *names = s->names ? find_list(record, s->names, &inside) : NULL;
  for (size_t i = 0; i < json_array_size(names); ++i) {
    const char *name = json_string_value(list_item(names, i, inside));
    if (name && !strcmp(name, gold)) return (long)i;
  }
  if (!s->names && !s->base && (!strcmp(gold, "false") || !strcmp(gold, "true"))) return gold[0] == 't';
  if (!s->names && gold[0] >= 'A' && gold[0] <= 'Z' && !gold[1]) return gold[0] - 'A';
  char *end;
  long number = strtol(gold, &end, 10);
  return names || end == gold || *end ? -1 : number - s->base;
}

static bool read_gold(struct reading *r, const struct shape *s, const char *label, struct eval_case *c) {
  char gold[32] = "";
  const json_t *value = label ? NULL : find_value(r->record, s->gold);
  if (!label && !value) return snprintf(r->problem, 120, "there is no \"%s\"", s->gold), false;
  if (label) snprintf(gold, sizeof gold, "%s", label);
  if (json_is_boolean(value)) snprintf(gold, sizeof gold, "%s", json_is_true(value) ? "true" : "false");
  if (json_is_integer(value)) snprintf(gold, sizeof gold, "%lld", (long long)json_integer_value(value));
  if (json_is_string(value)) snprintf(gold, sizeof gold, "%s", json_string_value(value));
  long number = gold_number(s, r->record, gold);
  if (number < 0 || (size_t)number >= c->choices)
    return snprintf(r->problem, 120, "the right answer, \"%s\", is none of the %zu choices", gold, c->choices), false;
  c->gold = (uint32_t)number;
  return true;
}

static size_t count_texts(const char *const *templates) {
  size_t n = 0;
  while (n < SHAPE_CHOICES && templates[n]) ++n;
  return n;
}

static bool read_document(struct reading *r, const struct shape *s, struct eval_case *c) {
  if (!set_text(r, s->choices[0], NULL, &c->choice[0].text)) return false;
  struct eval_text *t = &c->choice[0].text;
  c->words = split_words(t->text, t->count);
  c->bytes = t->count;
  char *clean = text_detokenize(t->text);
  free(t->text);
  *t = (struct eval_text){.text = clean, .count = strlen(clean)};
  return true;
}

static bool read_case(struct reading *r, const struct shape *s, const char *label, const json_t *list,
                      const char *inside, struct eval_case *c) {
  if (s->kind == EVAL_ROLLING) return read_document(r, s, c);
  if (s->context && !set_text(r, s->context, s->context_filter, &c->context)) return false;
  if (s->kind == EVAL_CLOZE) return set_text(r, s->choices[0], NULL, &c->choice[0].text);
  if (!(list ? read_list(r, s, list, inside, c) : read_choices(r, s, c))) return false;
  return read_gold(r, s, label, c);
}

bool shape_read(const struct shape *s, const json_t *record, const char *label, size_t line, struct eval_task *task,
                char problem[120]) {
  struct reading r = {.record = record, .problem = problem};
  const char *inside = NULL;
  const json_t *list = s->list ? find_list(record, s->list, &inside) : NULL;
  if (s->list && json_array_size(list) < 2)
    return snprintf(problem, 120, list ? "there are fewer than two choices" : "there is no \"%.60s\"", s->list), false;
  size_t count = list ? json_array_size(list) : count_texts(s->contexts[0] ? s->contexts : s->choices);
  struct eval_case *c = eval_task_add(task, line, count);
  if (read_case(&r, s, label, list, inside, c)) return true;
  eval_case_free(c);
  --task->count;
  return false;
}
