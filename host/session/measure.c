// measure: what measure_operator.c and measure_matmul.c share.
#include "measure.h"
#include "platform.h"

#include <math.h>
#include <stdlib.h>

double measure_now(void) { return 1e-9 * (double)platform_clock_ns(); }

double measure_warm(double idle) { return fmin(fmax(0.1, idle), 1); }

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void measure_summary(double *runs, uint32_t n, double *median, double *least, double *most) {
  qsort(runs, n, sizeof *runs, by_value);
  *least = runs[0];
  *most = runs[n - 1];
  *median = 0.5 * (runs[(n - 1) / 2] + runs[n / 2]);
}

float measure_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(int32_t)*state * 0x1p-31f;
}

bool measure_software(const struct backend *b) {
  return b->info.kind == DELTAIC_DEVICE_CPU || b->info.kind == DELTAIC_DEVICE_SOFTWARE;
}
