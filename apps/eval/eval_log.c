// eval_log: logs finished cases line by line. A truncated last line is skipped, and its case is run again.
#include "eval.h"
#include "eval_text.h"
#include "lines.h"
#include "platform.h"
#include "sha256.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Describes everything that the scores depend on, except the device, which changes only their rounding.
static json_t *describe(const struct eval_task *task, const struct eval_options *options,
                        const struct eval_result *result) {
  char fingerprint[17];
  snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)result->fingerprint);
  return json_pack("{s:s, s:s, s:s, s:I, s:b, s:I, s:I, s:s}", "task", task->name, "hash", task->hash, "fingerprint",
                   fingerprint, "max_length", (json_int_t)result->max_length, "no_bos", options->no_bos, "new_tokens",
                   (json_int_t)options->new_tokens, "attention_window", (json_int_t)options->engine.attention_window,
                   "precision", options->engine.precision);
}

static void make_key(struct eval_log *log, const json_t *run) {
  char *text = json_dumps(run, JSON_COMPACT | JSON_SORT_KEYS), hex[65];
  struct sha256 hash;
  sha256_begin(&hash);
  sha256_add(&hash, text ? text : "", text ? strlen(text) : 0);
  sha256_end(&hash, hex);
  snprintf(log->key, sizeof log->key, "%.16s", hex);
  free(text);
}

// ---------------------------------------------------------------- reading

static bool read_score(const json_t *line, const struct eval_case *c, struct case_score *s) {
  const json_t *ll = json_object_get(line, "ll"), *tokens = json_object_get(line, "tokens"),
               *greedy = json_object_get(line, "greedy"), *made = json_object_get(line, "made");
  if (json_array_size(ll) != c->choices || json_array_size(tokens) != c->choices ||
      json_array_size(greedy) != c->choices || (c->answer_count && !json_is_string(made)))
    return false;
  for (size_t i = 0; i < c->choices; ++i) // a log-likelihood of -infinity is null
    s->choice[i] = (struct choice_score){
        .ll = json_is_number(json_array_get(ll, i)) ? json_number_value(json_array_get(ll, i)) : -INFINITY,
        .tokens = (uint32_t)json_integer_value(json_array_get(tokens, i)),
        .greedy = json_is_true(json_array_get(greedy, i))};
  free(s->made);
  s->made = made ? text_copy(json_string_value(made), json_string_length(made)) : NULL;
  return true;
}

static int read_log(const struct eval_log *log, const struct eval_task *task, struct case_score *scores,
                    size_t *resumed) {
  struct lines *lines = must_resize(NULL, sizeof *lines);
  int code = lines_open(lines, log->path);
  while (!code && lines_next(lines)) {
    json_t *line = json_loadb(lines->text, lines->length, 0, NULL);
    const char *key = json_string_value(json_object_get(line, "key"));
    const json_t *number = json_object_get(line, "case");
    json_int_t i = json_integer_value(number);
    if (key && !strcmp(key, log->key) && json_is_integer(number) && i >= 0 && (size_t)i < task->count &&
        read_score(line, &task->cases[i], &scores[i])) {
      *resumed += !scores[i].done;
      scores[i].done = true;
    }
    json_decref(line);
  }
  int closed = lines_close(lines);
  free(lines);
  return code ? code : closed;
}

// ---------------------------------------------------------------- writing

static int complain_log(const struct eval_log *log) {
  return complain(EXIT_FAILED, "%s: %s", log->path, errno_text(errno));
}

// The operating system has the line when this function returns, so killing the program does not lose it.
static bool write_line(struct eval_log *log, json_t *line) {
  bool good = line && !json_dumpf(line, log->stream, JSON_COMPACT | JSON_REAL_PRECISION(17)) &&
              fputc('\n', log->stream) != EOF && !fflush(log->stream);
  json_decref(line);
  if (!good) complain_log(log);
  return good;
}

// Ends a truncated line.
static bool end_line(struct eval_log *log) {
  char last = '\n';
  FILE *stream = platform_open(log->path, "rb");
  if (stream && !fseek(stream, -1, SEEK_END)) last = (char)getc(stream);
  if (stream) fclose(stream);
  return last == '\n' || fputc('\n', log->stream) != EOF;
}

int eval_log_open(struct eval_log *log, const char *path, const struct eval_task *task,
                  const struct eval_options *options, struct eval_result *result) {
  json_t *run = describe(task, options, result);
  *log = (struct eval_log){.path = path};
  make_key(log, run);
  int code = file_size(path) ? read_log(log, task, result->scores, &result->resumed) : EXIT_OK;
  errno = 0;
  if (!code) log->stream = platform_open(path, "ab");
  if (!code && (!log->stream || !end_line(log))) code = complain_log(log);
  json_object_set_new(run, "key", json_string(log->key));
  json_object_set_new(run, "device", text_json(result->device));
  json_object_set_new(run, "version", json_string(deltaic_version()));
  if (code)
    json_decref(run);
  else if (!write_line(log, run))
    code = EXIT_FAILED;
  return code;
}

bool eval_log_add(struct eval_log *log, const struct eval_task *task, size_t index, const struct case_score *score) {
  json_t *ll = json_array(), *tokens = json_array(), *greedy = json_array();
  for (size_t i = 0; i < task->cases[index].choices; ++i) {
    json_array_append_new(ll, number_json(score->choice[i].ll));
    json_array_append_new(tokens, json_integer(score->choice[i].tokens));
    json_array_append_new(greedy, json_boolean(score->choice[i].greedy));
  }
  json_t *line = json_pack("{s:s, s:I, s:o, s:o, s:o}", "key", log->key, "case", (json_int_t)index, "ll", ll, "tokens",
                           tokens, "greedy", greedy);
  if (score->made) json_object_set_new(line, "made", text_json(score->made));
  return write_line(log, line);
}

int eval_log_close(struct eval_log *log) {
  if (!log->stream || !fclose(log->stream)) return EXIT_OK;
  return complain_log(log);
}
