// ranks_plot: plots the measured states. docs/program.md names the figure of a paper that each plot follows.
#include "common.h"
#include "plot.h"
#include "ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 6, MOST_BETAS = 3, MOST_POINTS = 250 };

// ---------------------------------------------------------------- curves

enum measure { UTILIZATION, STABLE_RANK, ENTROPY_RANK, CONDITION, SIMILARITY };

static double value_of(const struct sample *s, enum measure measure) {
  switch (measure) {
  case UTILIZATION: return s->rank.utilization;
  case STABLE_RANK: return s->rank.stable_rank;
  case ENTROPY_RANK: return s->rank.entropy_rank;
  case CONDITION: return s->rank.condition;
  case SIMILARITY: return s->similarity;
  }
  return NAN;
}

// Adds the heads' values at one time to *sum and their number to *count, without NaNs.
static void add_heads(const struct layer_ranks *l, size_t time, enum measure measure, double *sum, double *count) {
  for (int32_t h = 0; h < l->heads; ++h) {
    double value = value_of(&l->samples[time * (size_t)l->heads + (size_t)h], measure);
    if (isnan(value)) continue;
    *sum += value;
    ++*count;
  }
}

// Returns the mean over heads at each time. layer NULL: over all layers.
static double *over_tokens(const struct measured *m, const struct layer_ranks *layer, enum measure measure) {
  double *out = must_resize(NULL, m->times * sizeof *out);
  for (size_t t = 0; t < m->times; ++t) {
    double sum = 0, count = 0;
    for (size_t i = 0; i < m->layer_count; ++i)
      if (!layer || layer == &m->layers[i]) add_heads(&m->layers[i], t, measure, &sum, &count);
    out[t] = sum / count;
  }
  return out;
}

static void free_series(struct series *series, size_t count) {
  for (size_t i = 0; i < count; ++i) free((double *)series[i].y);
}

// Returns a chart over the text's tokens with marks where documents begin.
static struct chart text_chart(const struct measured *m, const char *title, const char *x_title, const char *y_title,
                               const struct series *series, size_t count) {
  return (struct chart){.title = title,
                        .x = {.title = x_title, .whole = true},
                        .y = {.title = y_title},
                        .series = series,
                        .count = count,
                        .marks = m->marks,
                        .mark_count = m->mark_count,
                        .mark_name = "a document begins"};
}

// Draws one curve per checkpoint, the mean over layers and heads. The marks are the document beginnings of the first
// checkpoint, which are exact for the others if their tokenizers agree.
static void draw_tokens(struct plot *plot, struct area area, const struct measured *m, size_t count,
                        enum measure measure, const char *title, const char *y_title) {
  struct series series[RANK_CHECKPOINTS];
  for (size_t i = 0; i < count; ++i)
    series[i] = (struct series){
        .name = m[i].name, .x = m[i].at, .y = over_tokens(&m[i], NULL, measure), .count = m[i].times, .color = (int)i};
  struct chart chart = text_chart(m, title, "tokens read", y_title, series, count);
  plot_chart(plot, area, &chart);
  free_series(series, count);
}

static void draw_by_layer(struct plot *plot, struct area area, const struct measured *m, size_t count) {
  struct series series[RANK_CHECKPOINTS];
  for (size_t i = 0; i < count; ++i) {
    double *y = must_resize(NULL, 2 * m[i].layer_count * sizeof *y), *x = y + m[i].layer_count;
    for (size_t l = 0; l < m[i].layer_count; ++l) {
      x[l] = m[i].layers[l].layer;
      y[l] = means_of(&m[i], &m[i].layers[l], -1).utilization;
    }
    series[i] = (struct series){.name = m[i].name, .x = x, .y = y, .count = m[i].layer_count, .color = (int)i};
  }
  struct chart chart = {.title = "by layer, mean over heads and tokens",
                        .x = {.title = "layer", .whole = true},
                        .y = {.title = "rank utilization"},
                        .series = series,
                        .count = count};
  plot_chart(plot, area, &chart);
  free_series(series, count);
}

static int plot_utilization(const struct measured *m, size_t count, const char *folder) {
  struct plot *plot = plot_create("Rank utilization of the states: stable rank / min(key size, value size)");
  draw_tokens(plot, plot_area(plot, 1, 2, 0, 0), m, count, UTILIZATION, "over tokens, mean over layers and heads",
              "rank utilization");
  draw_by_layer(plot, plot_area(plot, 1, 2, 0, 1), m, count);
  return plot_finish(plot, plot_name(folder, "utilization", NULL).text);
}

// ---------------------------------------------------------------- histograms

static int plot_spectrum(const struct measured *m, size_t count, const char *folder) {
  struct series series[RANK_CHECKPOINTS];
  double edges[RANK_BINS];
  char names[RANK_CHECKPOINTS][128];
  for (int i = 0; i < RANK_BINS; ++i) edges[i] = SPECTRUM_LEAST + i * -SPECTRUM_LEAST / RANK_BINS;
  for (size_t i = 0; i < count; ++i) {
    snprintf(names[i], sizeof names[i], "%s (%s below -6)", m[i].name, text_percent(m[i].zeros).text);
    series[i] = (struct series){
        .name = names[i], .x = edges, .y = m[i].spectrum, .count = RANK_BINS, .style = SERIES_BARS, .color = (int)i};
  }
  struct chart chart = {.title = "all recorded states, layers and heads",
                        .x = {.title = "log10 of singular value / largest of the same state (below -6: rounding)"},
                        .y = {.title = "share of singular values"},
                        .series = series,
                        .count = count};
  struct plot *plot = plot_create("Singular values of the states");
  plot_chart(plot, plot_area(plot, 1, 1, 0, 0), &chart);
  return plot_finish(plot, plot_name(folder, "spectrum", NULL).text);
}

static int plot_similarity(const struct measured *m, size_t count, const struct rank_request *r) {
  enum { BINS = 64 };
  double edges[BINS], shares[RANK_CHECKPOINTS][BINS];
  struct series series[RANK_CHECKPOINTS];
  char title[160], names[RANK_CHECKPOINTS][96];
  for (int i = 0; i < BINS; ++i) edges[i] = -1 + 2.0 * i / BINS;
  for (size_t i = 0; i < count; ++i) {
    similarity_shares(&m[i], shares[i], BINS);
    snprintf(names[i], sizeof names[i], "%s, entropy %.3f", m[i].name, similarity_entropy(&m[i]));
    series[i] = (struct series){
        .name = names[i], .x = edges, .y = shares[i], .count = BINS, .style = SERIES_BARS, .color = (int)i};
  }
  snprintf(title, sizeof title, "Cosine similarity of each state with that of %u token%s before", r->every,
           r->every == 1 ? "" : "s");
  struct plot *plot = plot_create(title);
  draw_tokens(plot, plot_area(plot, 1, 2, 0, 0), m, count, SIMILARITY, "over tokens, mean over layers and heads",
              "cosine similarity");
  struct chart chart = {.title = "all recorded states, layers and heads",
                        .x = {.title = "cosine similarity"},
                        .y = {.title = "share of states"},
                        .series = series,
                        .count = count};
  plot_chart(plot, plot_area(plot, 1, 2, 0, 1), &chart);
  return plot_finish(plot, plot_name(r->plot, "similarity", NULL).text);
}

// ---------------------------------------------------------------- one checkpoint

static void draw_layers(struct plot *plot, struct area area, const struct measured *m, const struct count_list *layers,
                        enum measure measure, const char *y_title) {
  struct series series[MOST_LAYERS];
  char names[MOST_LAYERS][24];
  for (size_t i = 0; i < layers->count; ++i) {
    snprintf(names[i], sizeof names[i], "layer %u", layers->values[i]);
    series[i] = (struct series){.name = names[i],
                                .x = m->at,
                                .y = over_tokens(m, find_layer(m, layers->values[i]), measure),
                                .count = m->times,
                                .color = (int)i};
  }
  struct chart chart = {.x = {.title = "tokens read", .whole = true},
                        .y = {.title = y_title, .log = measure == CONDITION},
                        .series = series,
                        .count = layers->count,
                        .marks = m->marks,
                        .mark_count = m->mark_count};
  plot_chart(plot, area, &chart);
  free_series(series, layers->count);
}

static int plot_layers(const struct measured *m, const struct rank_request *r) {
  struct count_list layers = layers_to_draw(m, &r->layers, MOST_LAYERS);
  char title[200];
  snprintf(title, sizeof title, "%s: states over tokens, means over heads%s", m->name,
           m->mark_count ? " (dashed: documents begin)" : "");
  struct plot *plot = plot_create(title);
  draw_layers(plot, plot_area(plot, 2, 2, 0, 0), m, &layers, UTILIZATION, "rank utilization");
  draw_layers(plot, plot_area(plot, 2, 2, 1, 0), m, &layers, STABLE_RANK, "stable rank");
  draw_layers(plot, plot_area(plot, 2, 2, 0, 1), m, &layers, ENTROPY_RANK, "entropy rank");
  draw_layers(plot, plot_area(plot, 2, 2, 1, 1), m, &layers, CONDITION, "condition");
  return plot_finish(plot, plot_name(r->plot, "layers", m).text);
}

// Returns the means of groups of `every` values; the last group may be smaller.
static double *thin(const double *values, size_t count, size_t every) {
  double *out = must_resize(NULL, (count + every - 1) / every * sizeof *out);
  for (size_t i = 0; i < count; i += every) {
    size_t n = count - i < every ? count - i : every;
    double sum = 0;
    for (size_t j = 0; j < n; ++j) sum += values[i + j];
    out[i / every] = sum / (double)n;
  }
  return out;
}

static void draw_betas(struct plot *plot, struct area area, const struct measured *m, const struct layer_ranks *l) {
  struct series series[RANK_STEPS + 1];
  char names[RANK_STEPS][24], title[96];
  size_t count = 0, every = (m->tokens + MOST_POINTS - 1) / MOST_POINTS, points = (m->tokens + every - 1) / every;
  double *x = must_resize(NULL, points * sizeof *x);
  for (size_t t = 0; t < points; ++t) x[t] = (double)(t * every) + ((double)every + 1) / 2;
  for (int32_t s = 0; l->beta && s < l->steps && s < RANK_STEPS; ++s) {
    snprintf(names[s], sizeof names[s], l->steps > 1 ? "beta of step %d" : "beta", s + 1);
    double *y = thin(l->beta + (size_t)s * m->tokens, m->tokens, every);
    series[count] = (struct series){.name = names[s], .x = x, .y = y, .count = points, .color = (int)count};
    ++count;
  }
  if (l->decay)
    series[count++] = (struct series){.name = "decay (1: none, 0: reset)",
                                      .x = x,
                                      .y = thin(l->decay, m->tokens, every),
                                      .count = points,
                                      .color = PLOT_COLORS - 1};
  snprintf(title, sizeof title, every > 1 ? "layer %d, means over heads and %zu tokens" : "layer %d, means over heads",
           l->layer, every);
  struct chart chart = text_chart(m, title, "token", "beta, decay", series, count);
  plot_chart(plot, area, &chart);
  free_series(series, count);
  free(x);
}

static int plot_betas(const struct measured *m, const struct rank_request *r) {
  struct count_list layers = layers_to_draw(m, &r->layers, MOST_BETAS);
  char title[200];
  snprintf(title, sizeof title, "%s: beta of each Householder step, and decay", m->name);
  struct plot *plot = plot_create(title);
  for (size_t i = 0; i < layers.count; ++i)
    draw_betas(plot, plot_area(plot, 1, (int)layers.count, 0, (int)i), m, find_layer(m, layers.values[i]));
  return plot_finish(plot, plot_name(r->plot, "beta", m).text);
}

int ranks_plot(const struct measured *m, size_t count, const struct rank_request *r) {
  int code = plot_utilization(m, count, r->plot);
  if (!code) code = plot_spectrum(m, count, r->plot);
  if (!code) code = plot_similarity(m, count, r);
  for (size_t i = 0; i < count && !code; ++i) {
    code = plot_layers(&m[i], r);
    if (!code) code = plot_betas(&m[i], r);
    if (!code) code = plot_filters(&m[i], r);
    if (!code) code = plot_masks(&m[i], r);
  }
  return code;
}
