// eval_compare: compares two results of `deltaic eval --json`: the differences, and whether they are significant.
#include "common.h"
#include "eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TWO_SIDED 1.96 // standard errors: equal values differ by more in 5 % of cases

// One metric of both results. paired: compared case by case on the same cases.
struct comparison {
  const char *checkpoints[2], *group, *metric;
  double values[2];
  double difference, error; // of the values: second minus first
  double z;                 // of the means before the transform; NaN: unknown
  bool paired;
};

struct comparing {
  json_t *files[2];
  const char *paths[2];
  bool same; // both have the same cases
  struct comparison *rows;
  size_t count;
};

// ---------------------------------------------------------------- reading

static int load(struct comparing *c, int side) {
  json_error_t error;
  const char *path = c->paths[side];
  size_t bytes;
  char *text = file_read(path, &bytes);
  if (!text) return EXIT_FAILED;
  c->files[side] = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
  free(text);
  if (!c->files[side]) return complain(EXIT_FAILED, "%s:%d: not JSON: %s", path, error.line, error.text);
  const json_t *results = json_object_get(c->files[side], "results");
  if (!json_is_array(results) || !json_is_string(json_object_get(c->files[side], "task")))
    return complain(EXIT_FAILED, "%s: not what 'deltaic eval --json' prints", path);
  return json_array_size(results) ? EXIT_OK : complain(EXIT_FAILED, "%s: there is no result in it", path);
}

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

static double number_of(const json_t *object, const char *key) {
  const json_t *number = json_object_get(object, key);
  return json_is_number(number) ? json_number_value(number) : NAN;
}

// JSON has no infinities, so an undefined sample is null.
static double sample_of(const json_t *list, size_t i) {
  const json_t *number = json_array_get(list, i);
  return json_is_number(number) ? json_number_value(number) : NAN;
}

// ---------------------------------------------------------------- errors

// Returns case i's part of a mean's deviation: (x_i - mean w_i) / sum w.
static double *influences(const json_t *metric, double *mean) {
  const json_t *x = json_object_get(metric, "samples"), *w = json_object_get(metric, "weights");
  size_t n = json_array_size(x);
  double sum = 0, weight = 0, *out = must_resize(NULL, n * sizeof *out);
  for (size_t i = 0; i < n; ++i) {
    sum += sample_of(x, i);
    weight += w ? sample_of(w, i) : 1;
  }
  *mean = sum / weight;
  for (size_t i = 0; i < n; ++i) out[i] = (sample_of(x, i) - *mean * (w ? sample_of(w, i) : 1)) / weight;
  return out;
}

// Returns the absolute derivative of the value with respect to the mean, at the midpoint.
static double slope(const struct eval_metric *metric, double a, double b) {
  if (metric->transform == EVAL_PERPLEXITY) return sqrt(a * b);
  return metric->transform == EVAL_BITS ? 1 / log(2) : 1;
}

// The test uses the mean, because a perplexity's error does not apply to a perplexity that is 1000 times smaller.
static double z_of(const struct eval_metric *metric, double a, double b, double error) {
  double z = a == b ? 0 : (b - a) / error;
  return metric->transform == EVAL_MEAN ? z : -z; // a lower likelihood is a higher perplexity
}

static void compare_paired(struct comparison *row, const struct eval_metric *metric, const json_t *a, const json_t *b) {
  double means[2], squares = 0, *x = influences(a, &means[0]), *y = influences(b, &means[1]);
  size_t n = json_array_size(json_object_get(a, "samples"));
  for (size_t i = 0; i < n; ++i) squares += (y[i] - x[i]) * (y[i] - x[i]);
  double error = sqrt(squares * (double)n / (double)(n - 1));
  row->paired = true;
  row->z = z_of(metric, means[0], means[1], error);
  row->error = error * slope(metric, row->values[0], row->values[1]);
  free(x);
  free(y);
}

static void compare_metric(struct comparing *c, const json_t *const results[2], const char *group,
                           const struct eval_metric *metric, const json_t *a, const json_t *b) {
  size_t n = json_array_size(json_object_get(a, "samples"));
  c->rows = must_resize(c->rows, (c->count + 1) * sizeof *c->rows);
  struct comparison *row = &c->rows[c->count++];
  *row = (struct comparison){.group = group, .metric = metric->name};
  row->checkpoints[0] = text_of(results[0], "checkpoint");
  row->checkpoints[1] = text_of(results[1], "checkpoint");
  row->values[0] = number_of(a, "value");
  row->values[1] = number_of(b, "value");
  row->difference = row->values[1] - row->values[0];
  row->error = hypot(number_of(a, "stderr"), number_of(b, "stderr"));
  row->z = z_of(metric, number_of(a, "mean"), number_of(b, "mean"),
                hypot(number_of(a, "mean_stderr"), number_of(b, "mean_stderr")));
  bool whole =
      json_is_true(json_object_get(results[0], "complete")) && json_is_true(json_object_get(results[1], "complete"));
  if (c->same && whole && n > 1 && n == json_array_size(json_object_get(b, "samples")))
    compare_paired(row, metric, a, b);
}

static void compare_metrics(struct comparing *c, const json_t *const results[2], const char *group, json_t *a,
                            json_t *b) {
  const char *name;
  json_t *value;
  json_object_foreach(a, name, value) {
    const struct eval_metric *metric = eval_metric_named(name);
    const json_t *other = json_object_get(b, name);
    if (metric && other) compare_metric(c, results, group, metric, value, other);
  }
}

static void compare_results(struct comparing *c, const json_t *a, const json_t *b) {
  const json_t *const results[2] = {a, b};
  json_t *groups = json_object_get(a, "groups"), *group;
  const char *name;
  compare_metrics(c, results, NULL, json_object_get(a, "metrics"), json_object_get(b, "metrics"));
  json_object_foreach(groups, name, group)
      compare_metrics(c, results, name, group, json_object_get(json_object_get(b, "groups"), name));
}

// ---------------------------------------------------------------- report

static const char *verdict(const struct comparison *row) {
  if (row->difference == 0) return "the same";
  if (isnan(row->z)) return "no errors to judge by";
  return fabs(row->z) > TWO_SIDED ? "differs" : "within its error";
}

static struct text number_text(double value, const char *sign) {
  struct text t;
  char format[16];
  snprintf(format, sizeof format, "%%%s.4f", sign);
  if (!isfinite(value)) return snprintf(t.text, sizeof t.text, "-"), t;
  snprintf(t.text, sizeof t.text, format, value);
  return t;
}

static void print(const struct comparing *c) {
  struct table table;
  printf("task    %s\nfirst   %s, %s\nsecond  %s, %s\n", text_of(c->files[0], "task"), c->paths[0],
         c->rows[0].checkpoints[0], c->paths[1], c->rows[0].checkpoints[1]);
  if (!c->same) printf("The cases are not the same: errors are those of independent samples.\n");
  printf("\n");
  table_begin(&table, "llrrrrrl");
  table_row(&table, "checkpoint", "metric", "first", "second", "difference", "error", "z", "");
  for (size_t i = 0; i < c->count; ++i) {
    const struct comparison *r = &c->rows[i];
    char name[80];
    snprintf(name, sizeof name, "%.30s%s%.30s", r->metric, r->group ? ", " : "", r->group ? r->group : "");
    table_row(&table, text_name(r->checkpoints[1]).text, name, number_text(r->values[0], "").text,
              number_text(r->values[1], "").text, number_text(r->difference, "+").text, number_text(r->error, "").text,
              number_text(r->z, "+").text, verdict(r));
  }
  table_end(&table, 0);
  printf(
      "\nz counts standard errors, of a perplexity those of its logarithm; beyond %.2f a difference is called one.\n",
      TWO_SIDED);
}

static int print_json(const struct comparing *c) {
  json_t *rows = json_array();
  for (size_t i = 0; i < c->count; ++i) {
    const struct comparison *r = &c->rows[i];
    json_array_append_new(rows,
                          json_pack("{s:[s, s], s:s, s:s?, s:o, s:o, s:o, s:o, s:o, s:b, s:b}", "checkpoints",
                                    r->checkpoints[0], r->checkpoints[1], "metric", r->metric, "group", r->group,
                                    "first", number_json(r->values[0]), "second", number_json(r->values[1]),
                                    "difference", number_json(r->difference), "stderr", number_json(r->error), "z",
                                    number_json(r->z), "paired", r->paired, "differs", fabs(r->z) > TWO_SIDED));
  }
  return json_finish(json_pack("{s:s, s:o, s:o, s:b, s:o}", "task", text_of(c->files[0], "task"), "first",
                               text_json(c->paths[0]), "second", text_json(c->paths[1]), "same_cases", c->same, "rows",
                               rows));
}

// Pairs results in order, or a single result with all results of the other file.
static int compare(struct comparing *c) {
  const json_t *a = json_object_get(c->files[0], "results"), *b = json_object_get(c->files[1], "results");
  size_t count = json_array_size(a) > json_array_size(b) ? json_array_size(a) : json_array_size(b);
  if (strcmp(text_of(c->files[0], "task"), text_of(c->files[1], "task")))
    return complain(EXIT_FAILED, "%s is of the task %s, %s of %s", c->paths[0], text_of(c->files[0], "task"),
                    c->paths[1], text_of(c->files[1], "task"));
  if (json_array_size(a) != json_array_size(b) && json_array_size(a) != 1 && json_array_size(b) != 1)
    return complain(EXIT_FAILED, "%s has %zu checkpoints and %s %zu: which belong together?", c->paths[0],
                    json_array_size(a), c->paths[1], json_array_size(b));
  c->same = !strcmp(text_of(c->files[0], "sha256"), text_of(c->files[1], "sha256"));
  for (size_t i = 0; i < count; ++i)
    compare_results(c, json_array_get(a, json_array_size(a) == 1 ? 0 : i),
                    json_array_get(b, json_array_size(b) == 1 ? 0 : i));
  return c->count ? EXIT_OK : complain(EXIT_FAILED, "%s and %s have no metric in common", c->paths[0], c->paths[1]);
}

int eval_compare(const char *first, const char *second, bool as_json) {
  struct comparing c = {.paths = {first, second}};
  int code = load(&c, 0);
  if (!code) code = load(&c, 1);
  if (!code) code = compare(&c);
  if (!code && as_json) code = print_json(&c);
  if (!code && !as_json) print(&c);
  free(c.rows);
  json_decref(c.files[0]);
  json_decref(c.files[1]);
  return code;
}
