// positions: computes the smoothed loss by position and writes it as CSV or PNG.
#include "positions.h"
#include "common.h"
#include "plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 2000 }; // points of a curve: more than the image has columns

void positions_add(struct positions *p, size_t position, double nll) {
  if (position >= p->capacity) {
    size_t capacity = 2 * position + 1024;
    p->nll = must_resize(p->nll, capacity * sizeof *p->nll);
    p->windows = must_resize(p->windows, capacity * sizeof *p->windows);
    for (size_t i = p->capacity; i < capacity; ++i) p->nll[i] = 0, p->windows[i] = 0;
    p->capacity = capacity;
  }
  if (position >= p->count) p->count = position + 1;
  p->nll[position] += nll;
  ++p->windows[position];
}

void positions_free(struct positions *p) {
  free(p->nll);
  free(p->windows);
  memset(p, 0, sizeof *p);
}

// Returns the mean over the 501 positions around one (fewer at the ends), or NaN if none was scored.
static double smoothed(const struct positions *p, size_t position) {
  size_t half = POSITIONS_SMOOTHED / 2, begin = position > half ? position - half : 0, end = position + half + 1;
  double sum = 0, n = 0;
  for (size_t i = begin; i < end && i < p->count; ++i) {
    sum += p->nll[i];
    n += p->windows[i];
  }
  return sum / n;
}

static size_t longest(const struct positions *curves, size_t count) {
  size_t most = 0;
  for (size_t c = 0; c < count; ++c)
    if (curves[c].count > most) most = curves[c].count;
  return most;
}

// ---------------------------------------------------------------- CSV

// Writes a quoted name, because names may contain commas and quotes.
static void write_name(FILE *stream, const char *name, const char *what) {
  fputs(",\"", stream);
  for (; *name; ++name) {
    if (*name == '"') fputc('"', stream);
    fputc(*name, stream);
  }
  fprintf(stream, " %s\"", what);
}

static void write_number(FILE *stream, double value) {
  if (isfinite(value))
    fprintf(stream, ",%.9g", value);
  else
    fputc(',', stream); // no token was scored at this position
}

int positions_write(const struct positions *curves, size_t count, const char *path) {
  struct new_file file;
  int code = output_begin(&file, path);
  if (code) return code;
  FILE *stream = file.stream;
  fputs("position", stream);
  for (size_t c = 0; c < count; ++c) {
    write_name(stream, curves[c].name, "nll");
    write_name(stream, curves[c].name, "nll over 501 tokens");
  }
  for (size_t i = 0, n = longest(curves, count); i < n; ++i) {
    fprintf(stream, "\n%zu", i);
    for (size_t c = 0; c < count; ++c) {
      bool there = i < curves[c].count;
      write_number(stream, there && curves[c].windows[i] ? curves[c].nll[i] / curves[c].windows[i] : NAN);
      write_number(stream, there ? smoothed(&curves[c], i) : NAN);
    }
  }
  fputc('\n', stream);
  return output_end(&file, path, EXIT_OK);
}

// ---------------------------------------------------------------- PNG

// The first and last positions of a moving average are means of fewer tokens. They are drawn too, because the curves
// differ most there.
static size_t make_points(const struct positions *p, double *x, double *y) {
  size_t step = p->count / POINTS + 1, n = 0;
  for (size_t i = 0; i < p->count; i += step, ++n) {
    x[n] = (double)i;
    y[n] = exp(smoothed(p, i));
  }
  return n;
}

int positions_draw(const struct positions *curves, size_t count, const char *path) {
  double *points = must_resize(NULL, 2 * count * (POINTS + 1) * sizeof *points);
  struct series *series = must_resize(NULL, count * sizeof *series);
  for (size_t c = 0; c < count; ++c) {
    double *x = points + 2 * c * (POINTS + 1), *y = x + POINTS + 1;
    series[c] = (struct series){.name = curves[c].name, .x = x, .y = y, .color = (int)(c % PLOT_COLORS)};
    series[c].count = make_points(&curves[c], x, y);
    if (c >= PLOT_COLORS) series[c].style = SERIES_DASHED;
  }
  struct plot *plot = plot_create("Perplexity by position");
  struct chart chart = {.x = {.title = "position in the window, tokens", .whole = true},
                        .y = {.title = "perplexity, moving average over 501 tokens"},
                        .series = series,
                        .count = count};
  plot_chart(plot, plot_area(plot, 1, 1, 0, 0), &chart);
  free(series);
  int code = plot_finish(plot, path);
  free(points);
  return code;
}
