// eval_plot: plots the first metric over the groups if their names are numbers (lengths).
#include "common.h"
#include "eval.h"
#include "plot.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

// Returns the groups' numbers, or NULL if a name is not a number.
static double *group_numbers(const struct eval_group *groups, size_t count) {
  double *x = must_resize(NULL, count * sizeof *x);
  for (size_t g = 0; g < count; ++g) {
    char *end;
    x[g] = strtod(groups[g].name, &end);
    if (*end || !(x[g] > 0)) {
      free(x);
      return NULL;
    }
  }
  return x;
}

static void fill_curve(const struct eval_task *task, const struct eval_result *r, const struct eval_group *groups,
                       size_t count, double *y) {
  const struct eval_metric *metrics;
  eval_metrics(task, &metrics);
  double *x = must_resize(NULL, 2 * task->count * sizeof *x), *w = x + task->count;
  for (size_t g = 0; g < count; ++g) {
    struct eval_value v = eval_value_of(&metrics[0], x, w, eval_samples(task, r, &groups[g], 0, x, w));
    y[g] = metrics[0].transform == EVAL_MEAN ? 100 * v.value : v.value;
  }
  free(x);
}

int eval_plot_check(const struct eval_task *task) {
  size_t count;
  struct eval_group *groups = eval_groups(task, &count);
  double *x = count ? group_numbers(groups, count) : NULL;
  bool good = x != NULL;
  free(x);
  eval_groups_free(groups);
  if (good) return EXIT_OK;
  return complain(EXIT_USAGE, "--plot draws over lengths: the cases of %s have no groups that are numbers", task->name);
}

int eval_plot(const struct eval_task *task, const struct eval_result *results, size_t count, const char *path) {
  const struct eval_metric *metrics;
  size_t group_count;
  struct eval_group *groups = eval_groups(task, &group_count);
  double *x = group_count ? group_numbers(groups, group_count) : NULL;
  assert(x); // checked by eval_plot_check
  double *y = must_resize(NULL, count * group_count * sizeof *y);
  struct series series[ARGUMENTS_CAPACITY];
  for (size_t i = 0; i < count; ++i) {
    fill_curve(task, &results[i], groups, group_count, y + i * group_count);
    series[i] = (struct series){.name = results[i].name.text,
                                .x = x,
                                .y = y + i * group_count,
                                .count = group_count,
                                .style = i < PLOT_COLORS ? SERIES_LINE : SERIES_DASHED,
                                .color = (int)(i % PLOT_COLORS)};
  }
  eval_metrics(task, &metrics);
  bool percent = metrics[0].transform == EVAL_MEAN;
  char title[96];
  snprintf(title, sizeof title, percent ? "%s, %%" : "%s", metrics[0].name);
  struct plot *plot = plot_create(task->name);
  struct chart chart = {
      .x = {.title = task->lengths ? "length, tokens" : "group", .log = true},
      .y = {.title = title, .least = percent ? -4 : 0, .most = percent ? 104 : 0}, // curves at 0 and 100 stay visible
      .series = series,
      .count = count};
  plot_chart(plot, plot_area(plot, 1, 1, 0, 0), &chart);
  int code = plot_finish(plot, path);
  free(x);
  free(y);
  eval_groups_free(groups);
  return code;
}
