// plot.h: draws charts as PNG files of 1200 x 800 pixels with one or more panels: line charts, histograms and heat
// maps. The colours suit colour-blind readers (Okabe and Ito's, viridis); text is ASCII.
#ifndef PLOT_H
#define PLOT_H
#include <stdbool.h>
#include <stddef.h>

struct plot; // an image

struct area { // pixels from the top left corner
  double x, y, w, h;
};

struct axis {
  const char *title; // with its unit
  bool log;
  bool whole;         // ticks only at integers
  double least, most; // both 0: taken from the data
};

enum series_style { SERIES_LINE, SERIES_DASHED, SERIES_POINTS, SERIES_BARS };

// A point that is not finite, or not positive on a log axis, interrupts the line. BARS: bins of equal width; x holds
// their left edges.
struct series {
  const char *name; // for the legend; NULL: not listed
  const double *x, *y;
  size_t count;
  enum series_style style;
  int color; // 0, 1, ...: index in the palette; or PLOT_GREY
};
enum { PLOT_GREY = -1, PLOT_COLORS = 8 };

struct chart {
  const char *title; // may be NULL
  struct axis x, y;
  const struct series *series;
  size_t count;
  const double *marks; // x of vertical lines
  size_t mark_count;
  const char *mark_name; // for the legend
};

struct heat {
  const char *title, *x_title, *y_title, *value_title; // value_title: beside the colour bar
  const double *values;                                // (rows, cols), row 0 at the top
  size_t rows, cols;
  double x_first, x_step; // label of column 0, and the difference between labels; step 0: 1
  double least, most;     // range of the colour scale; both 0: from the data
  bool diverging;         // white is 0
  bool numbers;           // write the values into the cells
};

struct plot *plot_create(const char *title);
void plot_free(struct plot *plot);
// Returns the panel in column `col` and row `row` of a grid below the title.
struct area plot_area(const struct plot *plot, int cols, int rows, int col, int row);
void plot_chart(struct plot *plot, struct area area, const struct chart *chart);
void plot_heat(struct plot *plot, struct area area, const struct heat *heat);
// Writes and frees the plot. It returns an exit code and prints a message if it is not EXIT_OK.
int plot_finish(struct plot *plot, const char *path);
#endif
