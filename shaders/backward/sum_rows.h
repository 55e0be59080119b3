// sum_rows.h: contract of sum_rows.comp.
#ifndef SUM_ROWS_H
#define SUM_ROWS_H
#include "interface.h"
#define SUM_ROWS_TO 0   // (1, cols) in and out, f32
#define SUM_ROWS_FROM 1 // (rows, stride) in, f32
#define SUM_ROWS_BINDINGS 2
#define SUM_ROWS_SPEC_LANES 0 // a multiple of SUM_ROWS_COLUMNS
#define SUM_ROWS_SPECS 1
#define SUM_ROWS_COLUMNS 16 // of a workgroup
struct sum_rows_args {
  uint rows;
  uint cols;
  uint stride;
  uint first; // column of `from` that belongs to column 0 of `to`
};
ARGS(sum_rows_args)
#endif
