// scale.h: computes the scale of a chart's axis: its range, its tick positions and its tick labels.
#ifndef SCALE_H
#define SCALE_H
#include "plot.h" // struct axis

enum { SCALE_TICKS = 32, SCALE_TEXT = 32 };

struct scale {
  double least, most; // range of the data; exponents of ten on a log scale
  double from, to;    // pixels
  bool log;
  double ticks[SCALE_TICKS];
  int count;
  double step; // between ticks, on a linear scale
};

// Whether the axis can show the value.
bool scale_takes(const struct axis *axis, double value);
// Extends a range to include a value. The range starts as INFINITY, -INFINITY.
void scale_include(const struct axis *axis, double value, double *least, double *most);
// least, most: range of the data, infinite if there are none. margin: fraction of the range added on both sides.
struct scale scale_make(const struct axis *axis, double least, double most, double margin, double from, double to);
// Places integer ticks in the middle of `count` cells; the first cell has the label `first`.
struct scale scale_of_cells(size_t count, double first, double step, double from, double to);
double scale_place(const struct scale *s, double value);
double scale_place_tick(const struct scale *s, int tick);
// Formats a tick label. If any plain label of the axis is too long, all are powers of ten ("2e6").
void scale_text(const struct scale *s, int tick, char text[SCALE_TEXT]);
#endif
