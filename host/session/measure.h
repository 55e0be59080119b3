// measure.h: what the measurements of operators (measure_operator.c) and of products (measure_matmul.c) share.
#ifndef MEASURE_H
#define MEASURE_H
#include "backend.h"

enum { MEASURE_MOST_RUNS = 1000 };

double measure_now(void); // seconds
// Sorts the times of n > 0 runs.
void measure_summary(double *runs, uint32_t n, double *median, double *least, double *most);
float measure_random(uint32_t *state);          // in (-1, 1)
bool measure_software(const struct backend *b); // sizes that a GPU needs would take it minutes
#endif
