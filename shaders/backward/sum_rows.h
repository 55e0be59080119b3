// sum_rows.h: contract of sum_rows.comp.
#ifndef SUM_ROWS_H
#define SUM_ROWS_H
#include "interface.h"
#define SUM_ROWS_TO 0   // (ceil(rows / each), cols) out, f32; with `add` in and out
#define SUM_ROWS_FROM 1 // (rows, stride) in, f32
#define SUM_ROWS_BINDINGS 2
#define SUM_ROWS_SPEC_LANES 0 // a multiple of SUM_ROWS_COLUMNS
#define SUM_ROWS_SPECS 1
#define SUM_ROWS_COLUMNS 16 // of a workgroup
struct sum_rows_args {
  uint rows;
  uint each; // rows of a sum
  uint cols;
  uint stride;
  uint first; // column of `from` that belongs to column 0 of `to`
  uint add;
};
ARGS(sum_rows_args)
#endif
