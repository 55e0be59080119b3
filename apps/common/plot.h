// plot.h: charts as PNG files: a canvas of 1200 x 800 with one or more panels, each a line chart, a histogram or a heat
// map. Colours are told apart by everyone (Okabe and Ito's, viridis); text is ASCII.
#ifndef PLOT_H
#define PLOT_H
#include <stdbool.h>
#include <stddef.h>

struct plot; // a canvas

struct area { // pixels from the left upper corner
  double x, y, w, h;
};

struct axis {
  const char *title; // with its unit
  bool log;
  bool whole;         // ticks at whole numbers only
  double least, most; // both 0: from the data
};

enum series_style { SERIES_LINE, SERIES_DASHED, SERIES_POINTS, SERIES_BARS };

// Points that are not finite, or not positive on a log axis, break a line. BARS: bins of equal width, x their left
// edges.
struct series {
  const char *name; // for the legend; NULL: not in it
  const double *x, *y;
  size_t count;
  enum series_style style;
  int color; // 0, 1, ...: the palette; PLOT_GREY
};
enum { PLOT_GREY = -1, PLOT_COLORS = 8 };

struct chart {
  const char *title; // may be NULL
  struct axis x, y;
  const struct series *series;
  size_t count;
  const double *marks; // vertical lines at these x
  size_t mark_count;
  const char *mark_name; // for the legend
};

struct heat {
  const char *title, *x_title, *y_title, *value_title; // value_title: beside the colours
  const double *values;                                // (rows, cols), row 0 on top
  size_t rows, cols;
  double x_first, x_step; // what column 0 is called, and how far the next one is; step 0: 1
  double least, most;     // of the colours; both 0: from the data
  bool diverging;         // white is 0
  bool numbers;           // written into the cells
};

struct plot *plot_create(const char *title);
void plot_free(struct plot *plot);
// The panel in column `col` and row `row` of a grid below the title.
struct area plot_area(const struct plot *plot, int cols, int rows, int col, int row);
void plot_chart(struct plot *plot, struct area area, const struct chart *chart);
void plot_heat(struct plot *plot, struct area area, const struct heat *heat);
// An exit code, after a complaint where it is not EXIT_OK. Frees the plot.
int plot_finish(struct plot *plot, const char *path);
#endif
