// positions.h: how a loss depends on the position in the text: mean over windows, smoothed, as CSV and PNG.
#ifndef POSITIONS_H
#define POSITIONS_H
#include <stddef.h>
#include <stdint.h>

enum { POSITIONS_SMOOTHED = 501 }; // tokens of the moving average, as in the DeltaProduct paper's figure 8

struct positions {
  char name[64]; // the checkpoint's
  double *nll;   // sums by position, from 0
  uint32_t *windows;
  size_t count, capacity;
};

void positions_add(struct positions *p, size_t position, double nll);
void positions_free(struct positions *p);
// position, then each curve's mean NLL and smoothed mean NLL. An exit code.
int positions_write(const struct positions *curves, size_t count, const char *path);
// Perplexity of the smoothed NLL over the position. An exit code.
int positions_draw(const struct positions *curves, size_t count, const char *path);
#endif
