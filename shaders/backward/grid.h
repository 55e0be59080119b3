// grid.h: where the numbers (rows, cols) of a grid are in a buffer: (i, k) is at + i * row + k * col.
#ifndef GRID_H
#define GRID_H
#include "interface.h"
struct grid_args {
  uint at;
  uint row;
  uint col;
};
#ifdef IS_GLSL
// The place of number e, counted along rows of `cols`.
uint place(grid_args g, uint cols, uint e) {
  uint i = e / cols;
  return g.at + i * g.row + (e - i * cols) * g.col;
}
#endif
#endif
