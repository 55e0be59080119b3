// positions.h: computes the loss per position as a smoothed mean over windows, and writes it as CSV and PNG.
#ifndef POSITIONS_H
#define POSITIONS_H
#include <stddef.h>
#include <stdint.h>

enum { POSITIONS_SMOOTHED = 501 }; // number of tokens in the moving average, as in figure 8 of the DeltaProduct paper

struct positions {
  char name[64]; // name of the checkpoint
  double *nll;   // sums by position, from position 0
  uint32_t *windows;
  size_t count, capacity;
};

void positions_add(struct positions *p, size_t position, double nll);
void positions_free(struct positions *p);
// Writes a CSV file: position, then each curve's mean NLL and smoothed mean NLL. It returns an exit code.
int positions_write(const struct positions *curves, size_t count, const char *path);
// Draws the perplexity of the smoothed NLL over the position. It returns an exit code.
int positions_draw(const struct positions *curves, size_t count, const char *path);
#endif
