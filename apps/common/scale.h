// scale.h: an axis of a chart: which numbers have ticks, where they are, and how they are written.
#ifndef SCALE_H
#define SCALE_H
#include "plot.h" // struct axis

enum { SCALE_TICKS = 32, SCALE_TEXT = 32 };

struct scale {
  double least, most; // of the data; exponents of ten on a log scale
  double from, to;    // pixels
  bool log;
  double ticks[SCALE_TICKS];
  int count;
  double step; // linear
};

// Whether the axis has a place for the value.
bool scale_takes(const struct axis *axis, double value);
// Widens a range, which begins as INFINITY, -INFINITY, by a value.
void scale_include(const struct axis *axis, double value, double *least, double *most);
// least, most: what the data reach, infinite when there are none; margin: of the range, on both sides.
struct scale scale_make(const struct axis *axis, double least, double most, double margin, double from, double to);
// Whole numbers at the middles of `count` cells, the first of which is called `first`.
struct scale scale_of_cells(size_t count, double first, double step, double from, double to);
double scale_place(const struct scale *s, double value);
double scale_place_tick(const struct scale *s, int tick);
// What stands at a tick. All of an axis are plain, or all powers of ten ("2e6"), where one of them is too long.
void scale_text(const struct scale *s, int tick, char text[SCALE_TEXT]);
#endif
