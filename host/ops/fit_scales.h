// fit_scales.h: the scales of blocks of numbers. A block stores numbers as scale * g, where g is on a grid: some whole
// numbers, or a table.
#ifndef FIT_SCALES_H
#define FIT_SCALES_H
#include "format.h"

// The values that a quantized number can have: least, least + 1, ... most; or those of a table in ascending order.
struct grid {
  float least, most;
  const float *table; // GRID_TABLE of them; NULL: whole numbers
  float step;         // between the ends that the search tries
};
enum { GRID_TABLE = 16, GROUP_MOST = 32, BLOCK = 256, GROUPS = BLOCK / GROUP_MOST };

// A scale of f16 for GROUP_MOST numbers.
float fit_scale(const struct grid *g, const float *x);

// A scale for each group of 16 or 32 numbers of a BLOCK: a whole number from low to high times d, which is f16.
struct scaled {
  float d;          // of the block
  float scales[16]; // whole numbers
};
struct scaled fit_scales(const struct grid *g, const float *x, int group, float low, float high);

// x is about scale * q - less, less >= 0.
struct line {
  float scale, less;
};
// Such a line for each GROUP_MOST numbers of a BLOCK: whole numbers times d, which are f16. The grid begins at 0.
struct lines {
  struct line d;            // of the block
  struct line each[GROUPS]; // whole numbers from 0 to 63
};
struct lines fit_lines(const struct grid *g, const float *x);

static inline float inverse(float scale) { return scale ? 1 / scale : 0; }

// The nearest whole number, for |x| < 2^22.
static inline float whole(float x) { return x + 0x1.8p23f - 0x1.8p23f; }

// The grid point nearest to v, and which it is.
static inline int table_index(const float *table, float v) {
  int index = 0;
  for (int i = 1; i < GRID_TABLE; i++) index += v > (table[i - 1] + table[i]) / 2;
  return index;
}

static inline float grid_nearest(const struct grid *g, float v) {
  if (g->table) return g->table[table_index(g->table, v)];
  v = v > g->least ? v : g->least;
  return whole(v < g->most ? v : g->most);
}

static inline int grid_index(const struct grid *g, float v) {
  return g->table ? table_index(g->table, v) : (int)(grid_nearest(g, v) - g->least);
}

#endif
