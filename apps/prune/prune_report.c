// prune_report: reports the result of `deltaic prune` as a table, JSON and a plot.
#include "common.h"
#include "plot.h"
#include "prune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static deltaic_selected_head head_at(const struct prune_work *w, size_t i) {
  deltaic_selected_head head;
  deltaic_selection_at(w->selection, i, &head); // cannot fail: i is below the count
  return head;
}

static struct text number(double x, bool known) {
  struct text t;
  snprintf(t.text, sizeof t.text, known ? "%.3g" : "-", x);
  return t;
}

static struct text fixed(double x, int digits, bool known) {
  struct text t;
  snprintf(t.text, sizeof t.text, known ? "%.*f" : "-", digits, x);
  return t;
}

// ---------------------------------------------------------------- table

// Prints only the numbers of channels, because there are no measurements without a calibration text.
static void print_counts(const struct prune_work *w, size_t count) {
  struct table t;
  table_begin(&t, "rrrr");
  table_row(&t, "layer", "head", "kept", "of");
  for (size_t i = 0; i < count; ++i) {
    deltaic_selected_head h = head_at(w, i);
    table_row(&t, fixed(h.layer, 0, true).text, fixed(h.head, 0, true).text, fixed(h.keep, 0, true).text,
              fixed(h.size, 0, true).text);
  }
  table_end(&t, 0);
}

static void print_heads(const struct prune_work *w) {
  struct table t;
  size_t count = deltaic_selection_count(w->selection), dead = 0, unsettled = 0, dependent = 0;
  if (count && !head_at(w, 0).measured) {
    print_counts(w, count);
    return;
  }
  table_begin(&t, "rrrrrrrrrr");
  table_row(&t, "layer", "head", "kept", "of", "condition", "after", "utilization", "after", "ln volume", "swaps");
  for (size_t i = 0; i < count; ++i) {
    deltaic_selected_head h = head_at(w, i);
    bool m = h.measured;
    table_row(&t, fixed(h.layer, 0, true).text, fixed(h.head, 0, true).text, fixed(h.keep, 0, true).text,
              fixed(h.size, 0, true).text, number(h.before.condition, m).text, number(h.after.condition, m).text,
              fixed(h.before.utilization, 3, m).text, fixed(h.after.utilization, 3, m).text,
              fixed(h.after.log_volume, 1, m).text, fixed(h.swaps, 0, true).text);
    dead += (size_t)h.dead;
    unsettled += !h.settled;
    dependent += w->r->about.rows && h.rank < h.keep;
  }
  table_end(&t, 0);
  if (dead) printf("%zu channels were zero throughout the text: they are kept last\n", dead);
  if (dependent) printf("%zu heads have fewer independent channels than are kept\n", dependent);
  if (unsettled) printf("%zu heads were left before no swap was worth it (--swaps)\n", unsettled);
}

// A refit or a recovery can increase the loss if the text is short or differs from the evaluation text.
static struct text won_text(const struct prune_work *w, double nll) {
  const double lost = w->nll_after - w->nll_before, won = w->nll_after - nll;
  struct text t = {""};
  if (won < 0)
    snprintf(t.text, sizeof t.text, "worse by %.4f", -won);
  else if (lost > 0)
    snprintf(t.text, sizeof t.text, "%s", text_percent(won / lost).text);
  return t;
}

static void print_losses(const struct prune_work *w) {
  const struct {
    const char *name;
    double nll;
    bool mends;
  } rows[] = {{"whole", w->nll_before, false},
              {"pruned", w->nll_after, false},
              {"refitted", w->nll_refit, true},
              {"recovered", w->nll_recover, true}};
  struct table t;
  if (isnan(w->nll_before)) return;
  const struct text count = text_count(w->eval.count), predictions = text_count(w->predictions);
  if (w->held_back)
    printf("evaluated    on the last %s tokens of %s, held back; %s predictions\n\n", count.text, w->r->recover,
           predictions.text);
  else
    printf("evaluated    on %s, %s predictions\n\n", w->r->eval, predictions.text);
  table_begin(&t, "lrrr");
  table_row(&t, "", "mean NLL", "perplexity", "of the loss recovered");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
    if (!isnan(rows[i].nll))
      table_row(&t, rows[i].name, fixed(rows[i].nll, 4, true).text, fixed(exp(rows[i].nll), 2, true).text,
                rows[i].mends ? won_text(w, rows[i].nll).text : "");
  table_end(&t, 0);
}

void prune_print(const struct prune_work *w) {
  const struct prune_request *r = w->r;
  deltaic_statistics_info info = {0};
  if (w->statistics) deltaic_statistics_get_info(w->statistics, &info);
  print_heads(w);
  printf("\nmethod       %s%s%s\n", r->method, r->select.side ? ", by " : "", r->select.side ? r->side : "");
  if (info.tokens)
    printf("calibration  %s tokens%s%s, text %016llx\n", text_count(info.tokens).text,
           w->seconds_calibration > 0 ? " in " : "",
           w->seconds_calibration > 0 ? text_seconds(w->seconds_calibration).text : "", (unsigned long long)info.hash);
  if (info.gradient_tokens)
    printf("gradients    %s tokens%s%s, text %016llx\n", text_count(info.gradient_tokens).text,
           w->seconds_gradients > 0 ? " in " : "",
           w->seconds_gradients > 0 ? text_seconds(w->seconds_gradients).text : "",
           (unsigned long long)info.gradient_hash);
  printf("selection    %s\n", text_seconds(w->seconds_selection).text);
  if (r->refit) printf("refit        %s\n", text_seconds(w->seconds_refit).text);
  if (r->recover)
    printf("recovery     %s, %s tokens\n", text_seconds(w->seconds_recover).text, text_count(w->recover.count).text);
  printf("state        %s, was %s (%s saved)\n", text_bytes(w->after.state_bytes).text,
         text_bytes(w->before.state_bytes).text, text_bytes(w->before.state_bytes - w->after.state_bytes).text);
  printf("weights      %s, were %s (%s saved)\n", text_bytes(w->after.weights_bytes).text,
         text_bytes(w->before.weights_bytes).text, text_bytes(w->before.weights_bytes - w->after.weights_bytes).text);
  printf("parameters   %s, were %s\n", text_short((double)w->info_after.parameters).text,
         text_short((double)w->info.parameters).text);
  if (r->adapter) printf("adapter      %s, merged\n", r->adapter);
  printf("written      %s\n", r->out);
  print_losses(w);
}

// ---------------------------------------------------------------- JSON

static json_t *measures_json(const deltaic_head_measures *m) {
  return json_pack("{s:o, s:o, s:o}", "condition", number_json(m->condition), "utilization",
                   number_json(m->utilization), "log_volume", number_json(m->log_volume));
}

static json_t *swaps_json(const struct prune_work *w, size_t i, int32_t count) {
  json_t *list = json_array();
  for (int32_t n = 0; n < count; ++n) {
    int32_t dropped, taken;
    double gain;
    if (deltaic_selection_swap(w->selection, i, n, &dropped, &taken, &gain)) break;
    json_array_append_new(
        list, json_pack("{s:i, s:i, s:o}", "dropped", (int)dropped, "taken", (int)taken, "gain", number_json(gain)));
  }
  return list;
}

static json_t *head_json(const struct prune_work *w, size_t i) {
  deltaic_selected_head h = head_at(w, i);
  json_t *kept = h.kept ? json_array() : json_null();
  for (int32_t j = 0; h.kept && j < h.keep; ++j) json_array_append_new(kept, json_integer(h.kept[j]));
  return json_pack("{s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:i, s:o, s:o, s:b}", "layer", (int)h.layer, "head",
                   (int)h.head, "size", (int)h.size, "keep", (int)h.keep, "kept", kept, "before",
                   h.measured ? measures_json(&h.before) : json_null(), "after",
                   h.measured ? measures_json(&h.after) : json_null(), "dead", (int)h.dead, "swaps",
                   swaps_json(w, i, h.swaps), "rho", number_json(h.rho), "settled", h.settled);
}

int prune_json(const struct prune_work *w) {
  const struct prune_request *r = w->r;
  deltaic_statistics_info info = {0};
  if (w->statistics) deltaic_statistics_get_info(w->statistics, &info);
  json_t *heads = json_array();
  for (size_t i = 0; i < deltaic_selection_count(w->selection); ++i) json_array_append_new(heads, head_json(w, i));
  char hash[32];
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)info.hash);
  json_t *o = json_pack("{s:o, s:o, s:o, s:s, s:s, s:o, s:I, s:o}", "checkpoint", text_json(r->engine.model), "adapter",
                        r->adapter ? text_json(r->adapter) : json_null(), "out", text_json(r->out), "method", r->method,
                        "side", r->side, "calibration", info.tokens ? json_string(hash) : json_null(),
                        "calibration_tokens", (json_int_t)info.tokens, "heads", heads);
  json_t *more = json_pack(
      "{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "held_back_tokens",
      (json_int_t)(w->held_back ? w->eval.count : 0), "gradient_tokens", (json_int_t)info.gradient_tokens,
      "gradient_seconds", number_json(w->seconds_gradients), "nll_before", number_json(w->nll_before), "nll_after",
      number_json(w->nll_after), "nll_refit", number_json(w->nll_refit), "nll_recover", number_json(w->nll_recover),
      "recover_seconds", number_json(w->seconds_recover), "state_bytes_before", (json_int_t)w->before.state_bytes,
      "state_bytes", (json_int_t)w->after.state_bytes, "weights_bytes_before", (json_int_t)w->before.weights_bytes,
      "weights_bytes", (json_int_t)w->after.weights_bytes, "parameters_before", (json_int_t)w->info.parameters,
      "parameters", (json_int_t)w->info_after.parameters, "calibration_seconds", number_json(w->seconds_calibration),
      "selection_seconds", number_json(w->seconds_selection), "refit_seconds", number_json(w->seconds_refit));
  json_object_update(o, more);
  json_decref(more);
  return json_finish(o);
}

// ---------------------------------------------------------------- plot

struct curves {
  double *x, *condition[2], *utilization[2]; // by head; [0]: before, [1]: after
  size_t count;
};

static struct curves collect(const struct prune_work *w) {
  struct curves c = {.count = deltaic_selection_count(w->selection)};
  size_t bytes = c.count * sizeof *c.x;
  c.x = must_resize(NULL, bytes);
  for (int side = 0; side < 2; ++side) {
    c.condition[side] = must_resize(NULL, bytes);
    c.utilization[side] = must_resize(NULL, bytes);
  }
  int32_t heads = w->info.heads > 0 ? w->info.heads : 1;
  for (size_t i = 0; i < c.count; ++i) {
    deltaic_selected_head h = head_at(w, i);
    const deltaic_head_measures *m[2] = {&h.before, &h.after};
    c.x[i] = h.layer + (double)h.head / heads;
    for (int side = 0; side < 2; ++side) {
      c.condition[side][i] = m[side]->condition;
      c.utilization[side][i] = m[side]->utilization;
    }
  }
  return c;
}

static bool differ(const struct prune_work *w) {
  deltaic_selected_head first = head_at(w, 0);
  for (size_t i = 1; i < deltaic_selection_count(w->selection); ++i) {
    deltaic_selected_head h = head_at(w, i);
    if (h.keep != first.keep || h.size != first.size) return true;
  }
  return false;
}

int prune_plot(const struct prune_work *w, const char *path) {
  deltaic_selected_head first = head_at(w, 0);
  struct curves c = collect(w);
  struct series condition[2], utilization[2];
  static const char *const names[2] = {"before", "after"};
  for (int side = 0; side < 2; ++side) {
    condition[side] = (struct series){names[side], c.x, c.condition[side], c.count, SERIES_POINTS, side};
    utilization[side] = (struct series){names[side], c.x, c.utilization[side], c.count, SERIES_POINTS, side};
  }
  char title[128];
  int used = snprintf(title, sizeof title, "%s: %d of %d channels", w->r->method, (int)first.keep, (int)first.size);
  if (differ(w)) snprintf(title + used, sizeof title - (size_t)used, " in layer %d", (int)first.layer);
  struct plot *plot = plot_create(title);
  struct chart charts[2] = {
      {.title = "condition of the activations",
       .x = {.title = "layer, its heads in order"},
       .y = {.title = "condition number", .log = true},
       .series = condition,
       .count = 2},
      {.title = "rank utilization",
       .x = {.title = "layer, its heads in order"},
       .y = {.title = "stable rank / channels"},
       .series = utilization,
       .count = 2},
  };
  for (int i = 0; i < 2; ++i) plot_chart(plot, plot_area(plot, 2, 1, i, 0), &charts[i]);
  int code = plot_finish(plot, path);
  free(c.x);
  for (int side = 0; side < 2; ++side) {
    free(c.condition[side]);
    free(c.utilization[side]);
  }
  return code;
}
