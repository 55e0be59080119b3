// eval_file: reads task files: JSONL cases (docs/eval.md), known data sets, and WikiText's raw text. A bad line is
// reported in one sentence with the file and the line.
#include "common.h"
#include "eval.h"
#include "eval_shapes.h"
#include "eval_text.h"
#include "lines.h"
#include "platform.h"

#include <stdlib.h>
#include <string.h>

struct task_file {
  const char *path;
  const struct shape *shape; // NULL: a file of cases
  const struct eval_options *options;
  struct eval_task *task;
  struct lines lines;
  struct lines labels; // stream NULL: there are no labels
  char problem[160];
};

// ---------------------------------------------------------------- cases as JSON

static bool wrong(struct task_file *f, const char *key, const char *what) {
  snprintf(f->problem, sizeof f->problem, "\"%s\" %s", key, what);
  return false;
}

// Reads a text or a list of token ids.
static bool read_text(struct task_file *f, const json_t *value, const char *key, struct eval_text *out) {
  if (json_is_string(value)) {
    *out = eval_text_of(json_string_value(value), json_string_length(value));
    return true;
  }
  if (!json_is_array(value)) return wrong(f, key, value ? "is no text and no list of token ids" : "is missing");
  out->count = json_array_size(value);
  out->ids = must_resize(NULL, out->count * sizeof *out->ids);
  for (size_t i = 0; i < out->count; ++i) {
    const json_t *id = json_array_get(value, i);
    json_int_t number = json_integer_value(id);
    if (!json_is_integer(id) || number < 0 || number > INT32_MAX)
      return wrong(f, key, "is a list, but not of token ids");
    out->ids[i] = (int32_t)number;
  }
  return true;
}

static bool read_choices(struct task_file *f, const json_t *choices, const char *delimiter, struct eval_case *c) {
  for (size_t i = 0; i < c->choices; ++i) {
    struct eval_choice *choice = &c->choice[i];
    struct eval_text *t = &choice->text;
    if (!read_text(f, json_array_get(choices, i), "choices", t)) return false;
    if (!t->count) return wrong(f, "choices", "has an empty choice");
    choice->bytes = (uint32_t)t->count;
    choice->characters = (uint32_t)(t->text ? utf8_characters(t->text, t->count) : t->count);
    if (!t->text) continue;
    size_t before = strlen(delimiter);
    t->text = must_resize(t->text, before + t->count + 1);
    memmove(t->text + before, t->text, t->count + 1);
    memcpy(t->text, delimiter, before);
    t->count += before;
  }
  return true;
}

static bool read_gold(struct task_file *f, const json_t *gold, struct eval_case *c) {
  json_int_t number = json_integer_value(gold);
  if (!gold) return wrong(f, "gold", "is missing");
  if (!json_is_integer(gold)) return wrong(f, "gold", "is no whole number");
  if (number < 0 || (size_t)number >= c->choices) {
    snprintf(f->problem, sizeof f->problem, "\"gold\" is %lld, but the choices are 0 to %zu", (long long)number,
             c->choices - 1);
    return false;
  }
  c->gold = (uint32_t)number;
  return true;
}

static bool read_answers(struct task_file *f, const json_t *value, struct eval_case *c) {
  size_t count = json_is_array(value) ? json_array_size(value) : 1;
  if (!count) return wrong(f, "contains", "is empty");
  c->answers = must_resize(NULL, count * sizeof *c->answers);
  for (size_t i = 0; i < count; ++i) {
    const json_t *answer = json_is_array(value) ? json_array_get(value, i) : value;
    if (!json_is_string(answer) || !*json_string_value(answer)) return wrong(f, "contains", "is no text");
    c->answers[c->answer_count++] = text_copy(json_string_value(answer), json_string_length(answer));
  }
  return true;
}

static bool read_group(struct task_file *f, const json_t *group, struct eval_case *c) {
  if (!group) return true;
  if (json_is_integer(group))
    snprintf(c->group, sizeof c->group, "%lld", (long long)json_integer_value(group));
  else if (json_is_string(group) && json_string_length(group) < sizeof c->group)
    snprintf(c->group, sizeof c->group, "%s", json_string_value(group));
  else
    return wrong(f, "group", "is no number and no short text");
  return true;
}

static bool same_kind(struct task_file *f, enum eval_kind kind) {
  static const char *const keys[] = {"choices", "target", "contains", "document"};
  if (f->task->kind_known && f->task->kind != kind) {
    snprintf(f->problem, sizeof f->problem, "has \"%s\" where the cases before it have \"%s\"", keys[kind],
             keys[f->task->kind]);
    return false;
  }
  f->task->kind = kind;
  f->task->kind_known = true;
  return true;
}

static bool read_values(struct task_file *f, const json_t *record, struct eval_case *c) {
  const json_t *context = json_object_get(record, "context"), *until = json_object_get(record, "until");
  const json_t *delimiter = json_object_get(record, "delimiter");
  struct eval_text *text = &c->choice[0].text;
  if (f->task->kind == EVAL_ROLLING) {
    if (!read_text(f, json_object_get(record, "document"), "document", text)) return false;
    if (!text->text) return wrong(f, "document", "is no text");
    c->words = split_words(text->text, text->count);
    c->bytes = text->count;
    return true;
  }
  if (context && !read_text(f, context, "context", &c->context)) return false;
  c->whole = json_is_true(json_object_get(record, "whole"));
  if (!read_group(f, json_object_get(record, "group"), c)) return false;
  if (delimiter && !json_is_string(delimiter)) return wrong(f, "delimiter", "is no text");
  if (until && !json_is_string(until)) return wrong(f, "until", "is no text");
  if (until) c->until = text_copy(json_string_value(until), json_string_length(until));
  if (f->task->kind == EVAL_RECALL) return read_answers(f, json_object_get(record, "contains"), c);
  if (f->task->kind == EVAL_CLOZE) {
    if (!read_text(f, json_object_get(record, "target"), "target", text)) return false;
    return text->count || wrong(f, "target", "is empty");
  }
  return read_choices(f, json_object_get(record, "choices"), delimiter ? json_string_value(delimiter) : " ", c) &&
         read_gold(f, json_object_get(record, "gold"), c);
}

static bool read_case(struct task_file *f, const json_t *record) {
  const json_t *choices = json_object_get(record, "choices");
  size_t count = 1;
  enum eval_kind kind = EVAL_CHOICE;
  if (choices) {
    count = json_array_size(choices);
    if (count < 2) return wrong(f, "choices", json_is_array(choices) ? "has fewer than two" : "is no list");
  } else if (json_object_get(record, "target"))
    kind = EVAL_CLOZE;
  else if (json_object_get(record, "contains"))
    kind = EVAL_RECALL;
  else if (json_object_get(record, "document"))
    kind = EVAL_ROLLING;
  else {
    snprintf(f->problem, sizeof f->problem,
             "a case needs \"choices\" and \"gold\", or \"target\", or \"contains\", or \"document\"");
    return false;
  }
  if (!same_kind(f, kind)) return false;
  struct eval_case *c = eval_task_add(f->task, f->lines.number, count);
  if (read_values(f, record, c)) return true;
  eval_case_free(c);
  --f->task->count;
  return false;
}

int eval_task_add_json(struct eval_task *task, const json_t *record) {
  struct task_file *f = must_resize(NULL, sizeof *f);
  memset(f, 0, sizeof *f);
  f->task = task;
  bool good = read_case(f, record);
  if (!good) complain(EXIT_FAILED, "%s: %s", task->name, f->problem);
  free(f);
  return good ? EXIT_OK : EXIT_FAILED;
}

// ---------------------------------------------------------------- lines

static bool read_label(struct task_file *f, char label[32]) {
  if (!f->labels.stream) return true;
  if (!lines_next(&f->labels) || f->labels.length >= 32 || !f->labels.length) {
    snprintf(f->problem, sizeof f->problem, "%.100s has no label for it", f->labels.path);
    return false;
  }
  memcpy(label, f->labels.text, f->labels.length + 1);
  return true;
}

static bool read_record(struct task_file *f, const json_t *record, const char *label) {
  if (!f->shape) return read_case(f, record);
  f->task->kind = f->shape->kind;
  return shape_read(f->shape, record, f->labels.stream ? label : NULL, f->lines.number, f->task, f->problem);
}

static bool read_line(struct task_file *f, bool plain) {
  char label[32] = "";
  json_error_t error;
  bool labelled = read_label(f, label);
  if (f->lines.problem[0]) {
    snprintf(f->problem, sizeof f->problem, "%s", f->lines.problem);
    return false;
  }
  if (!labelled) return false;
  json_t *record = plain ? json_pack("{s:s%}", "text", f->lines.text, f->lines.length)
                         : json_loadb(f->lines.text, f->lines.length, JSON_REJECT_DUPLICATES, &error);
  if (!record) {
    snprintf(f->problem, sizeof f->problem, "not JSON: %.100s", plain ? "a NUL character" : error.text);
    return false;
  }
  bool good = json_is_object(record) ? read_record(f, record, label)
                                     : (snprintf(f->problem, sizeof f->problem, "not a JSON object"), false);
  json_decref(record);
  return good;
}

static bool blank(const struct lines *l) { return !l->problem[0] && space_at_begin(l->text, l->length) == l->length; }

// Refuses surplus labels, which are probably of another part of the data set.
static int check_labels_end(struct task_file *f) {
  while (f->labels.stream && lines_next(&f->labels))
    if (!blank(&f->labels))
      return complain(EXIT_FAILED, "%s:%zu: %s ends before this label", f->labels.path, f->labels.number, f->path);
  return EXIT_OK;
}

static int read_lines(struct task_file *f) {
  bool plain = false, first = true;
  int code = EXIT_OK;
  while (!code && lines_next(&f->lines)) {
    if (blank(&f->lines)) continue;
    if (first && f->shape && f->shape->lines && !f->lines.problem[0]) plain = f->lines.text[0] != '{';
    first = false;
    if (read_line(f, plain)) continue;
    code = complain(EXIT_FAILED, "%s:%zu: %s%s", f->path, f->lines.number, f->problem,
                    f->options->skip_bad ? "; left out" : "");
    if (f->options->skip_bad) code = EXIT_OK;
    ++f->task->refused;
  }
  return code ? code : check_labels_end(f);
}

// ---------------------------------------------------------------- WikiText

// Whether the line is " = Title = " and not " = = Section = = ".
static bool is_title(const char *line, size_t n) {
  char *text = text_copy(line, n), *three = text_replace(text, "= = =", "==="), *two = text_replace(three, "= =", "==");
  char *stripped = text_strip(two);
  size_t length = strlen(stripped);
  bool title = length > 1 && stripped[0] == '=' && stripped[1] == ' ' && !strcmp(stripped + length - 2, " =");
  free(text);
  free(three);
  free(two);
  free(stripped);
  return title;
}

static int add_document(struct task_file *f, const char *text, size_t n, size_t line) {
  json_t *record = json_pack("{s:s%}", "page", text, n);
  bool good = record && shape_read(f->shape, record, NULL, line, f->task, f->problem);
  json_decref(record);
  if (good) return EXIT_OK;
  return complain(EXIT_FAILED, "%s:%zu: %s", f->path, line, record ? f->problem : "the document is not UTF-8");
}

static int read_documents(struct task_file *f) {
  size_t bytes, line = 1, begin_line = 1;
  char *text = file_read(f->path, &bytes);
  if (!text) return EXIT_FAILED;
  struct sha256 hash;
  sha256_begin(&hash);
  sha256_add(&hash, text, bytes);
  sha256_end(&hash, f->task->hash);
  int code = EXIT_OK;
  const char *begin = text, *end = text + bytes;
  for (const char *at = text; at <= end && !code; ++line) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop) stop = end;
    // A document is the concatenation of the lines before the next title, without its last newline.
    size_t length = at > begin ? (size_t)(at - 1 - begin) : 0;
    if (is_title(at, (size_t)(stop - at)) && at > text) {
      if (space_at_begin(begin, length) < length) code = add_document(f, begin, length, begin_line);
      begin = at;
      begin_line = line;
    }
    at = stop + 1;
  }
  if (!code) code = add_document(f, begin, (size_t)(end - begin), begin_line);
  free(text);
  return code;
}

// ---------------------------------------------------------------- files

static int open_labels(struct task_file *f, char path[1024]) {
  const char *suffix = ".jsonl";
  size_t length = strlen(f->path), end = strlen(suffix);
  if (!f->shape || !f->shape->labels || length < end || strcmp(f->path + length - end, suffix)) return EXIT_OK;
  snprintf(path, 1024, "%.*s%s", (int)(length - end < 900 ? length - end : 900), f->path, f->shape->labels);
  return file_size(path) ? lines_open(&f->labels, path) : EXIT_OK;
}

// The labels also identify a task, so they are appended to the hash.
static void hash_labels(struct task_file *f) {
  char bytes[4096];
  rewind(f->labels.stream);
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, f->labels.stream));) sha256_add(&f->lines.hash, bytes, n);
}

static bool looks_like_json(const char *path) {
  bool standard = !strcmp(path, "-");
  FILE *stream = standard ? stdin : platform_open(path, "rb");
  int c = stream ? getc(stream) : EOF;
  if (standard && c != EOF) ungetc(c, stdin);
  if (!standard && stream) fclose(stream);
  return c == '{';
}

static int read_file(struct task_file *f) {
  char labels[1024];
  if (f->shape && f->shape->documents && !looks_like_json(f->path)) {
    f->task->kind = f->shape->kind;
    return read_documents(f);
  }
  int code = lines_open(&f->lines, f->path);
  if (!code) code = open_labels(f, labels);
  if (!code) code = read_lines(f);
  int closed = lines_close(&f->lines);
  if (f->labels.stream) hash_labels(f);
  sha256_end(&f->lines.hash, f->task->hash);
  lines_close(&f->labels);
  return code ? code : closed;
}

int eval_task_read(const char *name, const char *data, const struct eval_options *options, struct eval_task *task) {
  struct task_file *f = must_resize(NULL, sizeof *f);
  memset(f, 0, sizeof *f);
  f->shape = shape_find(name);
  f->path = data ? data : name;
  f->options = options;
  f->task = task;
  snprintf(task->name, sizeof task->name, "%s", f->shape ? name : name + platform_folder(name));
  task->file = f->path;
  int code = read_file(f);
  free(f);
  if (code) return code;
  eval_task_limit(task, options->limit);
  return task->count ? EXIT_OK : complain(EXIT_FAILED, "%s: there is no case in it", task->file);
}

const char *eval_data_set(size_t i) { return shape_at(i) ? shape_at(i)->name : NULL; }

bool eval_is_data_set(const char *name) { return shape_find(name) != NULL; }

char *eval_data_sets(void) {
  char *text = text_copy("", 0);
  const struct shape *s;
  for (size_t i = 0; (s = shape_at(i)); ++i) {
    size_t used = strlen(text);
    text = must_resize(text, used + strlen(s->name) + strlen(s->about) + 8);
    sprintf(text + used, "%s  %s: %s", i ? "\n" : "", s->name, s->about);
  }
  return text;
}
