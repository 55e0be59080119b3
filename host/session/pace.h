// pace.h: how long slices and steps take, as far as has been seen, and how many tokens fit into a time. Lengths of
// slices are powers of two, so that few are compiled and measured.
#ifndef PACE_H
#define PACE_H
#include <stdbool.h>
#include <stdint.h>

enum { PACE_LENGTHS = 16 };
struct pace {
  struct pace_row {
    uint32_t runs;
    double ns;                  // the slowest of the last runs, without the first, which may compile
  } slices[PACE_LENGTHS], step; // of 2^i tokens
};

// The number of tokens, at most `most`, of the longest slice that takes at most `ns`; 0: none does. The first slices
// are short, and a length is tried only after its half.
uint32_t pace_slice(const struct pace *p, double ns, uint32_t most);
void pace_slice_took(struct pace *p, uint32_t tokens, double ns);
bool pace_step_fits(const struct pace *p, double ns);
void pace_step_took(struct pace *p, double ns);
#endif
