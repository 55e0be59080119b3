// plot: draws charts and heat maps on a canvas and writes the PNG file.
#include "plot.h"
#include "canvas.h"
#include "common.h" // must_resize
#include "scale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 1200, HEIGHT = 800, TITLE = 52 };
#define TEXT_SIZE 11.0 // height of capitals in pixels
#define TITLE_SIZE 16.0
#define LINE_WIDTH 2.2

static const struct rgb black = {30, 30, 30}, grey = {130, 130, 130}, light = {225, 225, 225}, white = {255, 255, 255};
// Okabe and Ito's colours; the yellow is darker so that it is visible on white.
static const struct rgb palette[PLOT_COLORS] = {{0, 114, 178},  {213, 94, 0},  {0, 158, 115},  {204, 121, 167},
                                                {86, 180, 233}, {230, 159, 0}, {120, 94, 240}, {60, 60, 60}};

struct plot {
  struct canvas canvas;
};

// Reduces the size if the text would not fit.
static void draw_title(struct canvas *c, const struct area *a, double y, double size, const char *title) {
  size *= fmin(1, (a->w - 20) / canvas_text_width(size, title));
  canvas_text(c, a->x + a->w / 2, y, size, TEXT_CENTER, black, title);
}

struct plot *plot_create(const char *title) {
  struct plot *p = must_resize(NULL, sizeof *p);
  canvas_begin(&p->canvas, WIDTH, HEIGHT);
  draw_title(&p->canvas, &(struct area){.w = WIDTH}, TITLE / 2.0, TITLE_SIZE, title);
  return p;
}

void plot_free(struct plot *p) {
  if (p) canvas_free(&p->canvas);
  free(p);
}

struct area plot_area(const struct plot *p, int cols, int rows, int col, int row) {
  double w = (double)p->canvas.w / cols, h = (double)(p->canvas.h - TITLE) / rows;
  return (struct area){col * w, TITLE + row * h, w, h};
}

int plot_finish(struct plot *p, const char *path) {
  int code = canvas_write(&p->canvas, path);
  plot_free(p);
  return code;
}

static struct rgb series_color(int color) { return color < 0 ? grey : palette[color % PLOT_COLORS]; }

// ---------------------------------------------------------------- axes

struct frame {
  double x0, y0, x1, y1;
};

static double widest_tick(const struct scale *s) {
  double most = 0;
  char text[SCALE_TEXT];
  for (int i = 0; i < s->count; ++i) {
    scale_text(s, i, text);
    most = fmax(most, canvas_text_width(TEXT_SIZE, text));
  }
  return most;
}

static void draw_x_axis(struct canvas *c, const struct frame *f, const struct scale *s, const char *title, bool grid) {
  double end = -1e9;
  char text[SCALE_TEXT];
  for (int i = 0; i < s->count; ++i) {
    double x = scale_place_tick(s, i), half;
    if (grid) canvas_line(c, x, f->y0, x, f->y1, 1, light);
    scale_text(s, i, text);
    half = canvas_text_width(TEXT_SIZE, text) / 2;
    canvas_line(c, x, f->y1, x, f->y1 + 5, 1, black);
    if (x - half < end + 8) continue; // no room
    canvas_text(c, x, f->y1 + 16, TEXT_SIZE, TEXT_CENTER, black, text);
    end = x + half;
  }
  if (title) canvas_text(c, (f->x0 + f->x1) / 2, f->y1 + 39, TEXT_SIZE, TEXT_CENTER, black, title);
}

static void draw_y_axis(struct canvas *c, const struct frame *f, const struct scale *s, const char *title, bool grid) {
  char text[SCALE_TEXT];
  for (int i = 0; i < s->count; ++i) {
    double y = scale_place_tick(s, i);
    if (grid) canvas_line(c, f->x0, y, f->x1, y, 1, light);
    canvas_line(c, f->x0 - 5, y, f->x0, y, 1, black);
    scale_text(s, i, text);
    canvas_text(c, f->x0 - 9, y, TEXT_SIZE, TEXT_RIGHT, black, text);
  }
  double x = f->x0 - 9 - widest_tick(s) - 19;
  if (title) canvas_text_up(c, x, (f->y0 + f->y1) / 2, TEXT_SIZE, TEXT_CENTER, black, title);
}

static void draw_frame(struct canvas *c, const struct frame *f) {
  canvas_line(c, f->x0, f->y0, f->x1, f->y0, 1, black);
  canvas_line(c, f->x0, f->y1, f->x1, f->y1, 1, black);
  canvas_line(c, f->x0, f->y0, f->x0, f->y1, 1, black);
  canvas_line(c, f->x1, f->y0, f->x1, f->y1, 1, black);
}

// ---------------------------------------------------------------- legend

static void dashed_line(struct canvas *c, double x0, double y0, double x1, double y1, struct rgb color) {
  double length = hypot(x1 - x0, y1 - y0), dx = (x1 - x0) / length, dy = (y1 - y0) / length;
  for (double t = 0; t < length; t += 11) {
    double end = fmin(t + 6, length);
    canvas_line(c, x0 + t * dx, y0 + t * dy, x0 + end * dx, y0 + end * dy, 1.6, color);
  }
}

static void draw_sample(struct canvas *c, double x, double y, enum series_style style, struct rgb color) {
  if (style == SERIES_LINE) canvas_line(c, x, y, x + 24, y, LINE_WIDTH + 0.6, color);
  if (style == SERIES_DASHED) dashed_line(c, x, y, x + 24, y, color);
  if (style == SERIES_POINTS) canvas_line(c, x + 12, y, x + 12, y, 7, color);
  if (style == SERIES_BARS) canvas_rect(c, x + 4, y - 6, x + 20, y + 6, color, 0.6);
}

// Draws one legend entry at *x, *y, or in the next row if it does not fit.
static void legend_entry(struct canvas *c, const struct area *a, double *x, double *y, const struct series *s) {
  double width = 24 + 8 + canvas_text_width(TEXT_SIZE, s->name) + 22;
  if (*x > a->x + 70 && *x + width > a->x + a->w - 10) {
    *x = a->x + 70;
    *y += 21;
  }
  draw_sample(c, *x, *y, s->style, series_color(s->color));
  canvas_text(c, *x + 32, *y, TEXT_SIZE, TEXT_LEFT, black, s->name);
  *x += width;
}

// Draws the legend above the frame and returns where the frame may begin.
static double draw_legend(struct canvas *c, const struct area *a, const struct chart *chart, double y) {
  const double begin = a->x + 70;
  const struct series marks = {.name = chart->mark_name, .style = SERIES_DASHED, .color = PLOT_GREY};
  double x = begin;
  for (size_t i = 0; i < chart->count; ++i)
    if (chart->series[i].name) legend_entry(c, a, &x, &y, &chart->series[i]);
  if (chart->mark_count && marks.name) legend_entry(c, a, &x, &y, &marks);
  return x > begin ? y + 20 : y;
}

// ---------------------------------------------------------------- charts

static double bar_width(const struct series *s) { return s->count > 1 ? s->x[1] - s->x[0] : 1; }

static void data_range(const struct chart *chart, double range[4]) {
  range[0] = range[2] = INFINITY;
  range[1] = range[3] = -INFINITY;
  for (size_t i = 0; i < chart->count; ++i) {
    const struct series *s = &chart->series[i];
    bool bars = s->style == SERIES_BARS;
    for (size_t j = 0; j < s->count; ++j) {
      if (!scale_takes(&chart->x, s->x[j]) || !scale_takes(&chart->y, s->y[j])) continue;
      scale_include(&chart->x, s->x[j], &range[0], &range[1]);
      scale_include(&chart->y, s->y[j], &range[2], &range[3]);
      if (bars) scale_include(&chart->x, s->x[j] + bar_width(s), &range[0], &range[1]);
    }
    if (bars && !chart->y.log) scale_include(&chart->y, 0, &range[2], &range[3]);
  }
}

struct chart_scales {
  struct scale x, y;
};

static void draw_line_series(struct canvas *c, const struct chart *chart, const struct series *s,
                             const struct chart_scales *scales) {
  bool before = false;
  double px = 0, py = 0;
  for (size_t i = 0; i < s->count; ++i) {
    bool here = scale_takes(&chart->x, s->x[i]) && scale_takes(&chart->y, s->y[i]);
    double x = here ? scale_place(&scales->x, s->x[i]) : 0, y = here ? scale_place(&scales->y, s->y[i]) : 0;
    if (here && before && s->style == SERIES_DASHED && hypot(x - px, y - py) > 0)
      dashed_line(c, px, py, x, y, series_color(s->color));
    else if (here && before && s->style == SERIES_LINE)
      canvas_line(c, px, py, x, y, LINE_WIDTH, series_color(s->color));
    // Few points get markers, because a single point has no line.
    bool dot = s->style == SERIES_POINTS || (s->style == SERIES_LINE && s->count <= 40);
    if (here && dot) canvas_line(c, x, y, x, y, 6, series_color(s->color));
    before = here;
    px = x;
    py = y;
  }
}

static void draw_bars(struct canvas *c, const struct frame *f, const struct chart *chart, const struct series *s,
                      const struct chart_scales *scales) {
  struct rgb color = series_color(s->color);
  double width = bar_width(s), last = f->y1;
  for (size_t i = 0; i < s->count; ++i) {
    double x0 = scale_place(&scales->x, s->x[i]), x1 = scale_place(&scales->x, s->x[i] + width);
    double y = scale_takes(&chart->y, s->y[i]) ? scale_place(&scales->y, s->y[i]) : f->y1;
    canvas_rect(c, x0, y, x1, f->y1, color, 0.25);
    canvas_line(c, x0, last, x0, y, LINE_WIDTH, color);
    canvas_line(c, x0, y, x1, y, LINE_WIDTH, color);
    if (i + 1 == s->count) canvas_line(c, x1, y, x1, f->y1, LINE_WIDTH, color);
    last = y;
  }
}

static void draw_marks(struct canvas *c, const struct frame *f, const struct chart *chart, const struct scale *x) {
  for (size_t i = 0; i < chart->mark_count; ++i)
    if (scale_takes(&chart->x, chart->marks[i]))
      dashed_line(c, scale_place(x, chart->marks[i]), f->y0, scale_place(x, chart->marks[i]), f->y1, grey);
}

void plot_chart(struct plot *plot, struct area a, const struct chart *chart) {
  struct canvas *c = &plot->canvas;
  double range[4], top = a.y + 12;
  data_range(chart, range);
  if (chart->title) {
    draw_title(c, &a, top + 2, TEXT_SIZE + 2, chart->title);
    top += 26;
  }
  top = draw_legend(c, &a, chart, top);
  bool bars = chart->count && chart->series[0].style == SERIES_BARS;
  struct frame f = {a.x, top, a.x + a.w - 24, a.y + a.h - 56};
  struct chart_scales s;
  s.y = scale_make(&chart->y, range[2], range[3], 0.04, f.y1, f.y0);
  if (bars && chart->y.least == 0 && chart->y.most == 0 && !chart->y.log) { // bars start at the axis
    struct axis grounded = {.most = s.y.most};
    s.y = scale_make(&grounded, 0, 1, 0, f.y1, f.y0);
  }
  f.x0 = a.x + widest_tick(&s.y) + 46;
  s.x = scale_make(&chart->x, range[0], range[1], bars ? 0 : 0.02, f.x0, f.x1);
  draw_x_axis(c, &f, &s.x, chart->x.title, true);
  draw_y_axis(c, &f, &s.y, chart->y.title, true);
  canvas_clip(c, f.x0, f.y0 - 2, f.x1, f.y1 + 1);
  draw_marks(c, &f, chart, &s.x);
  for (size_t i = 0; i < chart->count; ++i) {
    if (chart->series[i].style == SERIES_BARS)
      draw_bars(c, &f, chart, &chart->series[i], &s);
    else
      draw_line_series(c, chart, &chart->series[i], &s);
  }
  canvas_unclip(c);
  draw_frame(c, &f);
}

// ---------------------------------------------------------------- heat maps

// Interpolates between adjacent colours of viridis, or of blue, white and orange.
static struct rgb heat_color(double t, bool diverging) {
  static const double viridis[][3] = {{68, 1, 84},    {71, 44, 122}, {59, 81, 139},  {44, 113, 142}, {33, 144, 141},
                                      {39, 173, 129}, {92, 200, 99}, {170, 220, 50}, {253, 231, 37}};
  static const double two[][3] = {{0, 68, 136}, {84, 155, 206}, {255, 255, 255}, {240, 150, 70}, {150, 50, 0}};
  int last = diverging ? 4 : 8;
  t = fmin(fmax(isfinite(t) ? t : 0, 0), 1) * last;
  int i = t >= last ? last - 1 : (int)t;
  const double *a = diverging ? two[i] : viridis[i], *b = diverging ? two[i + 1] : viridis[i + 1];
  double part = t - i;
  return (struct rgb){(uint8_t)(a[0] + part * (b[0] - a[0])), (uint8_t)(a[1] + part * (b[1] - a[1])),
                      (uint8_t)(a[2] + part * (b[2] - a[2]))};
}

static void heat_range(const struct heat *h, double *least, double *most) {
  *least = h->least;
  *most = h->most;
  if (*least != 0 || *most != 0) return;
  *least = INFINITY;
  *most = -INFINITY;
  for (size_t i = 0; i < h->rows * h->cols; ++i) {
    if (!isfinite(h->values[i])) continue;
    *least = fmin(*least, h->values[i]);
    *most = fmax(*most, h->values[i]);
  }
  if (!(*least <= *most)) *least = 0, *most = 1;
  if (h->diverging) {
    *most = fmax(fabs(*least), fabs(*most));
    *least = -*most;
  }
  if (*least == *most) *most = *least + 1;
}

static void draw_cells(struct canvas *c, const struct frame *f, const struct heat *h, double least, double most) {
  double w = (f->x1 - f->x0) / (double)h->cols, tall = (f->y1 - f->y0) / (double)h->rows;
  for (size_t row = 0; row < h->rows; ++row)
    for (size_t col = 0; col < h->cols; ++col) {
      double value = h->values[row * h->cols + col], x = f->x0 + (double)col * w, y = f->y0 + (double)row * tall;
      struct rgb color = isfinite(value) ? heat_color((value - least) / (most - least), h->diverging) : light;
      canvas_rect(c, x, y, x + w, y + tall, color, 1);
      if (!h->numbers) continue;
      char text[32];
      snprintf(text, sizeof text, "%.2f", value);
      bool dark = 0.3 * color.r + 0.6 * color.g + 0.1 * color.b < 140;
      canvas_text(c, x + w / 2, y + tall / 2, TEXT_SIZE, TEXT_CENTER, dark ? white : black, text);
    }
}

static void draw_color_bar(struct canvas *c, const struct frame *f, const struct heat *h, double least, double most) {
  const struct axis axis = {.least = least, .most = most};
  struct scale s = scale_make(&axis, 0, 1, 0, f->y1, f->y0);
  double x = f->x1 + 14;
  for (double y = f->y0; y < f->y1; ++y) {
    double t = (f->y1 - y) / (f->y1 - f->y0);
    canvas_rect(c, x, y, x + 14, fmin(y + 1, f->y1), heat_color(t, h->diverging), 1);
  }
  struct frame bar = {x, f->y0, x + 14, f->y1};
  draw_frame(c, &bar);
  for (int i = 0; i < s.count; ++i) {
    char text[SCALE_TEXT];
    scale_text(&s, i, text);
    canvas_text(c, x + 20, scale_place_tick(&s, i), TEXT_SIZE, TEXT_LEFT, black, text);
  }
  double title = x + 20 + widest_tick(&s) + 14;
  if (h->value_title) canvas_text_up(c, title, (f->y0 + f->y1) / 2, TEXT_SIZE, TEXT_CENTER, black, h->value_title);
}

void plot_heat(struct plot *plot, struct area a, const struct heat *h) {
  struct canvas *c = &plot->canvas;
  double least, most, top = a.y + 14, step = h->x_step > 0 ? h->x_step : 1;
  heat_range(h, &least, &most);
  if (h->title) {
    draw_title(c, &a, top, TEXT_SIZE + 1, h->title);
    top += 22;
  }
  struct frame f = {a.x + 58, top, a.x + a.w - (h->value_title ? 112 : 84), a.y + a.h - 54};
  struct scale x = scale_of_cells(h->cols, h->x_first, step, f.x0, f.x1);
  struct scale y = scale_of_cells(h->rows, 0, 1, f.y0, f.y1);
  draw_cells(c, &f, h, least, most);
  draw_x_axis(c, &f, &x, h->x_title, false);
  draw_y_axis(c, &f, &y, h->y_title, false);
  draw_frame(c, &f);
  draw_color_bar(c, &f, h, least, most);
}
