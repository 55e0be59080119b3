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
uint place(grid_args g, uvec2 at) { return g.at + at.x * g.row + at.y * g.col; }
// Row and column of number e, counted along rows of `cols`; flat_rows: all grids of the kernel are one row.
uvec2 row_column(bool flat_rows, uint cols, uint e) {
  uint i = flat_rows ? 0 : e / cols;
  return uvec2(i, e - i * cols);
}
#endif
#endif
