// eval_report: prints the table, and the JSON that also serves for comparison.
#include "eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- groups and samples

static const struct eval_task *sorting;
static int by_group(const void *left, const void *right) {
  size_t a = *(const size_t *)left, b = *(const size_t *)right;
  int order = strcmp(sorting->cases[a].group, sorting->cases[b].group);
  return order ? order : (a > b) - (a < b);
}

static int by_first_case(const void *left, const void *right) {
  const struct eval_group *a = left, *b = right;
  return (a->cases[0] > b->cases[0]) - (a->cases[0] < b->cases[0]);
}

struct eval_group *eval_groups(const struct eval_task *task, size_t *count) {
  size_t *cases = must_resize(NULL, (2 * task->count + 1) * sizeof *cases), *order = cases + task->count;
  struct eval_group *groups = NULL;
  for (size_t i = 0; i < task->count; ++i) cases[i] = order[i] = i;
  sorting = task;
  qsort(order, task->count, sizeof *order, by_group);
  *count = 0;
  for (size_t i = 0, capacity = 0; i < task->count; ++i) {
    const char *name = task->cases[order[i]].group;
    if (!*name) continue;
    if (!*count || strcmp(groups[*count - 1].name, name)) {
      if (*count == capacity) groups = must_resize(groups, (capacity = 2 * capacity + 16) * sizeof *groups);
      groups[(*count)++] = (struct eval_group){.name = name, .cases = &order[i]};
    }
    ++groups[*count - 1].count;
  }
  if (*count) qsort(groups, *count, sizeof *groups, by_first_case);
  groups = must_resize(groups, (*count + 1) * sizeof *groups);
  groups[*count] = (struct eval_group){.cases = cases, .count = task->count};
  return groups;
}

void eval_groups_free(struct eval_group *groups) {
  struct eval_group *all = groups;
  while (all->name) ++all;
  free(all->cases); // shared by all groups
  free(groups);
}

size_t eval_samples(const struct eval_task *task, const struct eval_result *r, const struct eval_group *group,
                    size_t metric, double *x, double *w) {
  size_t n = 0;
  for (size_t i = 0; i < group->count; ++i) {
    if (!r->scores[group->cases[i]].done) continue;
    eval_sample(task, r->scores, group->cases[i], metric, &x[n], &w[n]);
    ++n;
  }
  return n;
}

// ---------------------------------------------------------------- the table

static struct text value_text(const struct eval_metric *m, const struct eval_value *v) {
  struct text t;
  char value[22], error[22];
  bool percent = m->transform == EVAL_MEAN;
  double scale = percent ? 100 : 1;
  int digits = percent ? 2 : v->value < 10 ? 4 : v->value < 1000 ? 3 : 1;
  if (!isfinite(v->value)) return snprintf(t.text, sizeof t.text, "-"), t;
  bool huge = v->value >= 1e6; // a perplexity of text that the model cannot predict
  snprintf(value, sizeof value, huge ? "%.*e" : "%.*f", huge ? 2 : digits, scale * v->value);
  snprintf(error, sizeof error,
           !isfinite(v->error) ? ""
           : huge              ? " ± %.*e"
                               : " ± %.*f",
           huge ? 2 : digits, scale * v->error);
  snprintf(t.text, sizeof t.text, "%s%s%s", value, error, percent ? " %" : "");
  return t;
}

struct columns {
  const char *cells[TABLE_COLUMNS]; // borrowed
  size_t count;
};

static void add_cell(struct columns *c, const char *text) { c->cells[c->count++] = text; }

static void add_row(struct table *table, const struct columns *c) {
  const char *const *x = c->cells;
  table_row(table, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]); // only as many as `align` has columns are read
}

static void print_row(struct table *table, const struct eval_task *task, const struct eval_result *r,
                      const struct eval_group *group, bool grouped) {
  const struct eval_metric *metrics;
  size_t count = eval_metrics(task, &metrics), n = 0;
  double *x = must_resize(NULL, (2 * group->count + 1) * sizeof *x), *w = x + group->count;
  struct columns c = {0};
  struct text values[EVAL_METRICS];
  for (size_t m = 0; m < count; ++m) {
    n = eval_samples(task, r, group, m, x, w);
    struct eval_value v = eval_value_of(&metrics[m], x, w, n);
    values[m] = value_text(&metrics[m], &v);
  }
  add_cell(&c, r->name.text);
  if (grouped) add_cell(&c, group->name);
  struct text cases = text_count(n);
  add_cell(&c, cases.text);
  for (size_t m = 0; m < count; ++m) add_cell(&c, values[m].text);
  add_row(table, &c);
  free(x);
}

static void print_head(struct table *table, const struct eval_task *task, bool grouped) {
  static const char *const aligns[EVAL_METRICS + 2] = {"lr",     "lrr",     "lrrr",     "lrrrr",
                                                       "lrrrrr", "lrrrrrr", "lrrrrrrr", "lrrrrrrrr"};
  const struct eval_metric *metrics;
  size_t count = eval_metrics(task, &metrics);
  struct columns c = {0};
  table_begin(table, aligns[count + grouped]);
  add_cell(&c, "checkpoint");
  if (grouped) add_cell(&c, task->lengths ? "length" : "group");
  add_cell(&c, "cases");
  for (size_t m = 0; m < count; ++m) add_cell(&c, metrics[m].name);
  add_row(table, &c);
}

void eval_print(const struct eval_task *task, const struct eval_result *results, size_t count) {
  struct table table;
  size_t group_count;
  struct eval_group *groups = eval_groups(task, &group_count);
  printf("task         %s, %s cases", task->name, text_count(task->count).text);
  if (task->refused) printf(", %s lines left out", text_count(task->refused).text);
  printf("\n%s%s%s", task->file ? "file         " : "", task->file ? task->file : "", task->file ? "\n" : "");
  printf("sha256       %.16s\n", task->hash);
  for (size_t i = 0; i < count; ++i) {
    const struct eval_result *r = &results[i];
    printf("%-12s %s, %s tokens in %s", i ? "" : "device", r->device, text_count(r->evaluated).text,
           text_seconds(r->seconds).text);
    if (r->evaluated && r->seconds > 0) printf(", %s tokens/s", text_rate((double)r->evaluated / r->seconds).text);
    if (r->busy_seconds > 0) printf(", the device busy for %.1f %% of it", 100 * r->busy_seconds / r->seconds);
    if (r->resumed) printf(", %s cases from the log", text_count(r->resumed).text);
    if (r->done < task->count) printf("; stopped after %s cases", text_count(r->done).text);
    printf("\n");
  }
  printf("\n");
  print_head(&table, task, group_count > 0);
  for (size_t i = 0; i < count; ++i)
    for (size_t g = 0; g < (group_count ? group_count : 1); ++g)
      print_row(&table, task, &results[i], &groups[g], group_count > 0);
  table_end(&table, 0);
  eval_groups_free(groups);
}

// ---------------------------------------------------------------- JSON

static json_t *value_json(const struct eval_task *task, const struct eval_result *r, const struct eval_group *group) {
  const struct eval_metric *metrics;
  size_t count = eval_metrics(task, &metrics);
  double *x = must_resize(NULL, (2 * group->count + 1) * sizeof *x), *w = x + group->count;
  json_t *out = json_object();
  for (size_t m = 0; m < count; ++m) {
    size_t n = eval_samples(task, r, group, m, x, w);
    struct eval_value v = eval_value_of(&metrics[m], x, w, n);
    json_t *list = json_array(), *weights = metrics[m].weighted ? json_array() : NULL;
    for (size_t i = 0; i < n; ++i) json_array_append_new(list, number_json(x[i]));
    for (size_t i = 0; i < n && weights; ++i) json_array_append_new(weights, number_json(w[i]));
    json_t *value = json_pack("{s:o, s:o, s:I, s:o, s:o, s:o}", "value", number_json(v.value), "stderr",
                              number_json(v.error), "cases", (json_int_t)n, "mean", number_json(v.mean), "mean_stderr",
                              number_json(v.mean_error), "samples", list);
    if (weights) json_object_set_new(value, "weights", weights);
    json_object_set_new(out, metrics[m].name, value);
  }
  free(x);
  return out;
}

static json_t *result_json(const struct eval_task *task, const struct eval_result *r) {
  char fingerprint[17];
  size_t count;
  struct eval_group *groups = eval_groups(task, &count);
  json_t *per_group = json_object();
  for (size_t g = 0; g < count; ++g) json_object_set_new(per_group, groups[g].name, value_json(task, r, &groups[g]));
  json_t *metrics = value_json(task, r, &groups[count]);
  eval_groups_free(groups);
  snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)r->fingerprint);
  return json_pack(
      "{s:o, s:s, s:o, s:I, s:I, s:I, s:b, s:I, s:I, s:o, s:o, s:o, s:o}", "checkpoint", text_json(r->checkpoint),
      "fingerprint", fingerprint, "device", text_json(r->device), "max_length", (json_int_t)r->max_length, "cases",
      (json_int_t)r->done, "resumed", (json_int_t)r->resumed, "complete", r->done == task->count, "tokens",
      (json_int_t)r->tokens, "evaluated", (json_int_t)r->evaluated, "seconds", number_json(r->seconds), "busy_seconds",
      r->busy_seconds > 0 ? number_json(r->busy_seconds) : json_null(), "metrics", metrics, "groups", per_group);
}

int eval_print_json(const struct eval_task *task, const struct eval_options *options, const struct eval_result *results,
                    size_t count) {
  json_t *list = json_array();
  for (size_t i = 0; i < count; ++i) json_array_append_new(list, result_json(task, &results[i]));
  return json_finish(json_pack(
      "{s:s, s:s, s:o, s:s, s:I, s:I, s:{s:I, s:b, s:I, s:I, s:s}, s:o, s:o}", "deltaic", deltaic_version(), "task",
      task->name, "file", task->file ? text_json(task->file) : json_null(), "sha256", task->hash, "cases",
      (json_int_t)task->count, "left_out", (json_int_t)task->refused, "options", "limit", (json_int_t)options->limit,
      "no_bos", options->no_bos, "new_tokens", (json_int_t)options->new_tokens, "attention_window",
      (json_int_t)options->engine.attention_window, "precision", options->engine.precision, "recipe",
      task->recipe ? json_incref(task->recipe) : json_null(), "results", list));
}
