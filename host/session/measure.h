// measure.h: what measure_operator.c and measure_matmul.c share.
#ifndef MEASURE_H
#define MEASURE_H
#include "backend.h"

enum { MEASURE_MOST_RUNS = 1000 };

double measure_now(void); // seconds
// Seconds of runs before those that are timed, on a device that has just been measured and was then idle for so long.
double measure_warm(double idle);
// Sorts the times of n > 0 runs and finds their median, minimum and maximum.
void measure_summary(double *runs, uint32_t n, double *median, double *least, double *most);
float measure_random(uint32_t *state);          // in (-1, 1)
bool measure_software(const struct backend *b); // true: a software device, for which sizes for a GPU would take minutes
#endif
