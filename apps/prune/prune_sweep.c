// prune_sweep: measures every method at every share on the user's model and texts, as in the state-reduction paper.
#include "common.h"
#include "platform.h"
#include "plot.h"
#include "prune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double cuts[] = {0.3, 0.4, 0.5, 0.75, 0.875};
enum { CUTS = sizeof cuts / sizeof *cuts, MOST_ROWS = 16 };

struct row {
  char name[40];
  const char *method;
  bool refit;
  double nll[CUTS];
};

struct sweep {
  struct prune_work *w;
  struct row rows[MOST_ROWS];
  int count;
  char folder[512];
};

static int list_rows(struct sweep *s) {
  deltaic_prune_method m;
  for (int32_t i = 0; deltaic_prune_method_at(i, &m); ++i)
    for (int refit = 0; refit <= s->w->r->refit && s->count < MOST_ROWS; ++refit) {
      struct row *row = &s->rows[s->count++];
      row->method = m.name;
      row->refit = refit;
      snprintf(row->name, sizeof row->name, "%s%s", m.name, refit ? " + refit" : "");
      for (int c = 0; c < CUTS; ++c) row->nll[c] = NAN;
    }
  return EXIT_OK;
}

// Measures one method at one share. The pruned checkpoint is in a temporary folder meanwhile.
static int measure_cell(struct sweep *s, struct row *row, int cut) {
  struct prune_work *w = s->w;
  deltaic_select_options o = w->r->select;
  deltaic_selection *selection = NULL;
  char label[96];
  o.method = row->method;
  o.rows = prune_from_rows(w, row->method);
  o.cut = cuts[cut];
  o.keep_count = 0;
  o.rule = DELTAIC_KEEP_GIVEN;
  int code = complain_status(deltaic_select(w->model, w->statistics, &o, &selection));
  if (!code) code = complain_status(deltaic_pruning_begin(w->model, selection, s->folder, NULL, &w->pruning));
  if (!code && row->refit) code = prune_refit(w);
  snprintf(label, sizeof label, "%s, %g %% removed", row->name, 100 * cuts[cut]);
  if (!code) code = prune_nll_of(w, deltaic_pruning_path(w->pruning), label, &row->nll[cut]);
  deltaic_pruning_free(w->pruning);
  w->pruning = NULL;
  deltaic_selection_free(selection);
  return !code && interrupted() ? EXIT_INTERRUPTED : code;
}

// ---------------------------------------------------------------- report

static struct text cell_text(double nll) {
  struct text t;
  snprintf(t.text, sizeof t.text, isnan(nll) ? "-" : "%.4f", nll);
  return t;
}

static void print(const struct sweep *s) {
  struct table t;
  char title[CUTS][16];
  for (int c = 0; c < CUTS; ++c) snprintf(title[c], sizeof title[c], "%g %%", 100 * cuts[c]);
  printf("mean NLL of %s (%s predictions) by share of key channels removed; unpruned %.4f\n\n", s->w->r->eval,
         text_count(s->w->predictions).text, s->w->nll_before);
  table_begin(&t, "lrrrrr");
  table_row(&t, "method", title[0], title[1], title[2], title[3], title[4]);
  for (int i = 0; i < s->count; ++i) {
    const double *x = s->rows[i].nll;
    table_row(&t, s->rows[i].name, cell_text(x[0]).text, cell_text(x[1]).text, cell_text(x[2]).text,
              cell_text(x[3]).text, cell_text(x[4]).text);
  }
  table_end(&t, 0);
}

static int print_json(const struct sweep *s) {
  json_t *rows = json_array();
  for (int i = 0; i < s->count; ++i)
    for (int c = 0; c < CUTS; ++c)
      json_array_append_new(rows, json_pack("{s:s, s:b, s:f, s:o, s:o}", "method", s->rows[i].method, "refit",
                                            s->rows[i].refit, "cut", cuts[c], "nll", number_json(s->rows[i].nll[c]),
                                            "perplexity", number_json(exp(s->rows[i].nll[c]))));
  return json_finish(json_pack("{s:o, s:o, s:o, s:I, s:o, s:o}", "checkpoint", text_json(s->w->r->engine.model),
                               "adapter", s->w->r->adapter ? text_json(s->w->r->adapter) : json_null(), "eval",
                               text_json(s->w->r->eval), "predictions", (json_int_t)s->w->predictions, "nll_before",
                               number_json(s->w->nll_before), "rows", rows));
}

static int draw(const struct sweep *s, const char *path) {
  double x[CUTS], before_x[2] = {100 * cuts[0], 100 * cuts[CUTS - 1]},
                  before_y[2] = {s->w->nll_before, s->w->nll_before};
  struct series series[MOST_ROWS + 1];
  for (int c = 0; c < CUTS; ++c) x[c] = 100 * cuts[c];
  for (int i = 0; i < s->count; ++i)
    series[i] = (struct series){
        s->rows[i].name,         x, s->rows[i].nll, CUTS, s->rows[i].refit ? SERIES_DASHED : SERIES_LINE,
        i / (1 + s->w->r->refit)};
  series[s->count] = (struct series){"unpruned", before_x, before_y, 2, SERIES_DASHED, PLOT_GREY};
  struct plot *plot = plot_create("Loss after pruning");
  struct chart chart = {.x = {.title = "key channels removed, %"},
                        .y = {.title = "mean NLL, nats"},
                        .series = series,
                        .count = (size_t)s->count + 1};
  plot_chart(plot, plot_area(plot, 1, 1, 0, 0), &chart);
  return plot_finish(plot, path);
}

int prune_sweep(struct prune_work *w) {
  struct sweep s = {.w = w};
  char *temporary = platform_temporary_folder();
  snprintf(s.folder, sizeof s.folder, "%.400s/deltaic-sweep", temporary ? temporary : ".");
  free(temporary);
  int code = prune_measure(w);
  if (!code) code = prune_measure_whole(w);
  if (!code) code = list_rows(&s);
  for (int i = 0; i < s.count && !code; ++i)
    for (int c = 0; c < CUTS && !code; ++c) code = measure_cell(&s, &s.rows[i], c);
  if (code && code != EXIT_INTERRUPTED) return code;
  if (!s.count || isnan(w->nll_before)) return code;
  int written = EXIT_OK;
  if (w->r->as_json)
    written = print_json(&s);
  else
    print(&s);
  if (!written && w->r->plot) written = draw(&s, w->r->plot);
  return written ? written : code;
}
