// measure.h: what the measurements of operators and of products share.
#ifndef MEASURE_H
#define MEASURE_H
#include "ops.h"

enum { MEASURE_MOST_RUNS = 1000 };

double measure_now(void); // seconds
// Sorts the times of n > 0 runs.
void measure_summary(double *runs, uint32_t n, double *median, double *least, double *most);
#endif
