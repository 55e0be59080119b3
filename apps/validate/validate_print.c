// validate_print: prints the comparison as tables, JSON and a plot.
#include "common.h"
#include "platform.h"
#include "plot.h"
#include "print.h"
#include "validate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *precision_name(const struct source *s) { return precision_rows[s->precision].name; }

// "float64", "cuda_bf16"
static const char *source_name(const struct source *s) { return *s->name ? s->name : precision_name(s); }

static struct text text_error(double value) {
  struct text out;
  snprintf(out.text, sizeof out.text, isnan(value) ? "-" : value == 0 ? "0" : "%.2e", value);
  return out;
}

static struct text text_fixed(double value, int digits) {
  struct text out;
  snprintf(out.text, sizeof out.text, isnan(value) ? "-" : "%.*f", digits, value);
  return out;
}

static struct text text_piece(uint32_t piece) {
  struct text out;
  snprintf(out.text, sizeof out.text, piece ? "%u" : "all", piece);
  return out;
}

static const char *verdict(bool passed) { return passed ? "pass" : "FAIL"; }

// ---------------------------------------------------------------- tables

static void print_source(const char *name, const struct source *s) {
  char line[1024];
  snprintf(line, sizeof line, "%-9s  %s", name, s->text ? s->text : precision_name(s));
  printf("%s\n", text_clean(line));
}

static void print_head(const struct validation *v) {
  printf("model      %s\n", v->path);
  printf("device     %s\n", engine_device_text(&v->engine));
  printf("reference  %s\n", v->file);
  print_source("computed", &v->sources[0]); // the one without a prefix
  for (size_t i = 1; i < v->source_count; ++i) print_source(v->sources[i].name, &v->sources[i]);
  printf("text       %s tokens\n", text_count(v->n).text);
}

static void tensor_row(struct table *t, const struct validation *v, const struct comparison *c) {
  int32_t layer = first_layer_over(c, v->layers);
  struct text over = {"-"};
  if (layer >= 0) snprintf(over.text, sizeof over.text, "%d", layer);
  table_row(t, c->kind, source_name(c->source), text_piece(c->piece).text,
            text_error(distance_relative(&c->ours.all)).text, text_error(c->ours.all.largest).text,
            text_fixed(distance_cosine(&c->ours.all), 9).text, text_error(c->limit).text, over.text,
            verdict(comparison_passes(c, v->layers)));
}

static bool any(const struct validation *v, bool truth) {
  for (size_t i = 0; i < v->count; ++i)
    if ((v->comparisons[i].truth != NULL) == truth) return true;
  return false;
}

static void print_tensors(const struct validation *v) {
  struct table t;
  if (!any(v, false)) return;
  printf("\ntensors, ours against the reference\n");
  table_begin(&t, "llrrrrrrl");
  table_row(&t, "tensor", "against", "piece", "relative RMS", "largest", "cosine", "limit", "layer over", "verdict");
  for (size_t i = 0; i < v->count; ++i)
    if (!v->comparisons[i].truth) tensor_row(&t, v, &v->comparisons[i]);
  table_end(&t, 2);
}

// "ours - float64", "cuda_bf16 - float64", "ours - cuda_bf16"
static void print_others(const struct validation *v) {
  struct table t;
  if (!any(v, true)) return;
  printf("\nother programs beside ours, relative RMS\n");
  table_begin(&t, "lllrrrrl");
  table_row(&t, "tensor", "program", "truth", "piece", "program - truth", "ours - truth", "ours - program", "nearer");
  for (size_t i = 0; i < v->count; ++i) {
    const struct comparison *c = &v->comparisons[i], *ours = against_truth(v, c);
    if (!ours) continue;
    double mine = distance_relative(&ours->ours.all), theirs = distance_relative(&c->theirs.all);
    table_row(&t, c->kind, source_name(c->source), source_name(c->truth), text_piece(c->piece).text,
              text_error(theirs).text, text_error(mine).text, text_error(distance_relative(&c->ours.all)).text,
              mine <= theirs ? "ours" : source_name(c->source));
  }
  table_end(&t, 2);
}

static void print_layers(const struct validation *v, const struct comparison *c) {
  struct table t;
  const struct comparison *ours = c->truth ? against_truth(v, c) : c;
  printf("\n%s by layer, piece %s, against %s\n", c->kind, text_piece(c->piece).text,
         source_name(c->truth ? c->truth : c->source));
  table_begin(&t, "rrrrr");
  table_row(&t, "layer", "relative RMS", "largest", "cosine", c->truth ? source_name(c->source) : "");
  for (int32_t i = 0; ours && i < v->layers; ++i) {
    const struct distance *d = &ours->ours.layers[i];
    if (d->count)
      table_row(&t, text_count((uint64_t)i).text, text_error(distance_relative(d)).text, text_error(d->largest).text,
                text_fixed(distance_cosine(d), 9).text,
                c->truth ? text_error(distance_relative(&c->theirs.layers[i])).text : "");
  }
  table_end(&t, 2);
}

static void print_rest(const struct validation *v) {
  const struct greedy *g = &v->greedy;
  printf("\n");
  if (g->count)
    printf("greedy     %zu of %zu as in the reference, %zu others below a margin of %g, %zu wrong: %s\n", g->equal,
           g->count, g->close, g->limit, g->wrong, verdict(!g->wrong));
  if (!v->nll.there) return;
  printf("mean NLL   ours %s", text_fixed(v->nll.ours, 6).text);
  for (size_t i = 0; i < v->source_count; ++i)
    if (!isnan(v->nll.reference[i]))
      printf("; %s %.6f, difference %s of %g", source_name(&v->sources[i]), v->nll.reference[i],
             text_error(fabs(v->nll.ours - v->nll.reference[i])).text, nll_limit(v, i));
  printf(": %s\n", verdict(nll_passes(v)));
}

void validation_print(const struct validation *v, bool layers) {
  char text[200];
  print_head(v);
  print_tensors(v);
  print_others(v);
  for (size_t i = 0; i < v->count; ++i)
    if (layers && v->comparisons[i].probe) print_layers(v, &v->comparisons[i]);
  print_rest(v);
  bool failed = first_failure(v, text, sizeof text);
  printf("verdict    %s%s%s\n", verdict(!failed), failed ? ": " : "", failed ? text : "");
}

// ---------------------------------------------------------------- JSON

static json_t *distance_json(const struct distance *d) {
  if (!d->count) return json_null();
  return json_pack("{s:o, s:o, s:o}", "relative_rms", number_json(distance_relative(d)), "largest",
                   number_json(d->largest), "cosine", number_json(distance_cosine(d)));
}

static json_t *layers_json(const struct validation *v, const struct comparison *c, const struct distance *layers) {
  if (!c->probe) return json_null();
  json_t *list = json_array();
  for (int32_t i = 0; i < v->layers; ++i) json_array_append_new(list, distance_json(&layers[i]));
  return list;
}

static json_t *comparison_json(const struct validation *v, const struct comparison *c) {
  int32_t layer = first_layer_over(c, v->layers);
  json_t *out =
      json_pack("{s:s, s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:b}", "tensor", c->kind, "source", c->source->name,
                "precision", precision_name(c->source), "piece", (int)c->piece, "limit", number_json(c->limit), "ours",
                distance_json(&c->ours.all), "layers", layers_json(v, c, c->ours.layers), "first_layer_over",
                layer < 0 ? json_null() : json_integer(layer), "passes", comparison_passes(c, v->layers));
  if (!out || !c->truth) return out;
  json_object_set_new(out, "truth", json_string(precision_name(c->truth)));
  json_object_set_new(out, "from_truth", distance_json(&c->theirs.all));
  json_object_set_new(out, "layers_from_truth", layers_json(v, c, c->theirs.layers));
  return out;
}

static json_t *greedy_json(const struct greedy *g) {
  if (!g->count) return json_null();
  return json_pack("{s:I, s:I, s:I, s:I, s:o}", "tokens", (json_int_t)g->count, "equal", (json_int_t)g->equal,
                   "below_margin", (json_int_t)g->close, "wrong", (json_int_t)g->wrong, "margin",
                   number_json(g->limit));
}

static json_t *nll_json(const struct validation *v) {
  if (!v->nll.there) return json_null();
  json_t *out = json_object();
  json_object_set_new(out, "ours", number_json(v->nll.ours));
  for (size_t i = 0; i < v->source_count; ++i)
    json_object_set_new(out, source_name(&v->sources[i]), number_json(v->nll.reference[i]));
  return out;
}

int validation_json(const struct validation *v) {
  char text[200] = "";
  bool failed = first_failure(v, text, sizeof text);
  json_t *list = json_array();
  for (size_t i = 0; i < v->count; ++i) json_array_append_new(list, comparison_json(v, &v->comparisons[i]));
  return json_finish(json_pack("{s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:s, s:o}", "model", text_json(v->path), "device",
                               text_json(engine_device_text(&v->engine)), "reference", text_json(v->file), "tokens",
                               (json_int_t)v->n, "tensors", list, "greedy", greedy_json(&v->greedy), "nll", nll_json(v),
                               "verdict", failed ? "fail" : "pass", "reason", failed ? text_json(text) : json_null()));
}

// ---------------------------------------------------------------- a picture

enum { SERIES = 24 };

struct curves {
  struct series list[SERIES];
  char names[SERIES][3 * NAME_CAPACITY];
  size_t count;
};

// Room for n points; NULL when there are enough series.
static struct series *add_curve(struct curves *c, const char *name, size_t n, int color) {
  if (c->count == SERIES) return NULL;
  struct series *s = &c->list[c->count];
  double *room = must_resize(NULL, 2 * n * sizeof *room);
  snprintf(c->names[c->count], sizeof c->names[0], "%s", name);
  *s = (struct series){.name = c->names[c->count++], .x = room, .y = room + n, .color = color};
  return s;
}

static void add_point(struct series *s, double x, double y) {
  ((double *)s->x)[s->count] = x;
  ((double *)s->y)[s->count++] = y;
}

static void free_curves(struct curves *c) {
  for (size_t i = 0; i < c->count; ++i) free((double *)c->list[i].x);
}

static void add_limit(struct curves *c, double limit, double least, double most) {
  struct series *s = add_curve(c, "limit", 2, PLOT_GREY);
  if (!s) return;
  s->style = SERIES_DASHED;
  add_point(s, least, limit);
  add_point(s, most, limit);
}

static void add_layers(struct curves *c, const struct validation *v, const char *name, const struct distances *d) {
  struct series *s = add_curve(c, name, (size_t)v->layers, (int)c->count);
  for (int32_t i = 0; s && i < v->layers; ++i)
    if (d->layers[i].count) add_point(s, i, distance_relative(&d->layers[i]));
}

static void add_positions(struct curves *c, const struct validation *v, const char *name, const struct distances *d) {
  struct series *s = add_curve(c, name, v->n, (int)c->count);
  for (size_t i = 0; s && i < v->n; ++i)
    if (d->positions[i].count) add_point(s, (double)i, distance_relative(&d->positions[i]));
}

typedef void (*add_curves)(struct curves *c, const struct validation *v, const char *name, const struct distances *d);

// Ours and the other programs' distances from the truth, of the first piece; kind NULL: every kind.
static void collect(struct curves *curves, const struct validation *v, bool layers, add_curves add) {
  for (size_t i = 0; i < v->count; ++i) {
    const struct comparison *c = &v->comparisons[i];
    if (c->piece != v->comparisons[0].piece || (layers && !c->probe)) continue;
    if (!layers && !strcmp(c->kind, "state")) continue; // one position
    char name[3 * NAME_CAPACITY];
    const struct source *from = c->truth ? c->truth : c->source;
    snprintf(name, sizeof name, "%s %s - %s", c->kind, c->truth ? source_name(c->source) : "ours", source_name(from));
    add(curves, v, name, c->truth ? &c->theirs : &c->ours);
  }
}

static void draw(struct plot *plot, struct area area, struct curves *curves, double most, const char *title,
                 const char *x_title) {
  struct chart chart = {
      .title = title,
      .x = {.title = x_title, .whole = true, .least = most > 1 ? -0.02 * most : -0.5, .most = 1.02 * most},
      .y = {.title = "relative RMS", .log = true},
      .series = curves->list,
      .count = curves->count};
  plot_chart(plot, area, &chart);
  free_curves(curves);
}

int validation_plot(const struct validation *v, const char *path) {
  char title[600];
  const char *name = v->path + platform_folder(v->path);
  struct curves layers = {.count = 0}, positions = {.count = 0};
  double limit = v->count ? v->comparisons[0].limit : 0;
  collect(&layers, v, true, add_layers);
  collect(&positions, v, false, add_positions);
  bool has_layers = layers.count;
  if (!layers.count && !positions.count)
    return complain(EXIT_FAILED, "%s: nothing in the reference has layers or positions to draw", v->file);
  snprintf(title, sizeof title, "%s on %s: distance from the reference", *name ? name : v->path,
           v->engine.device_info.kind == DELTAIC_DEVICE_CPU ? "the CPU" : v->engine.device_info.name);
  struct plot *plot = plot_create(title);
  if (has_layers) {
    add_limit(&layers, limit, 0, v->layers - 1);
    draw(plot, plot_area(plot, 1, 2, 0, 0), &layers, v->layers - 1, "by layer", "layer");
  }
  add_limit(&positions, limit, 0, (double)v->n - 1);
  draw(plot, plot_area(plot, 1, has_layers ? 2 : 1, 0, has_layers), &positions, (double)v->n - 1, "by position",
       "position (tokens)");
  return plot_finish(plot, path);
}
