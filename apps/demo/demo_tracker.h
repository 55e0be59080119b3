// demo_tracker.h: declares a constructed one-layer DeltaProduct that solves a group's word problem (docs/demos.md).
#ifndef DEMO_TRACKER_H
#define DEMO_TRACKER_H
#include "demo_groups.h"

enum { TRACKER_HEADS = 8 };

struct tracker_options {
  uint32_t steps;    // Householder steps per token; if there are fewer than the group needs, the rest is omitted
  uint32_t heads;    // 0: a number that suits the group
  uint32_t copies;   // copies of each coordinate of a representation; 0: 16
  bool no_negatives; // beta in (0, 1): no reflections
  bool bf16;         // weights in bfloat16
};

// Head h stores S = spread(R(g) start) of one representation and outputs o = S^T q.
struct tracker {
  const struct group *group;
  struct tracker_options options; // resolved
  uint32_t key_size, value_size;
  uint32_t representation[TRACKER_HEADS];
  double query[TRACKER_HEADS][GROUP_DIMENSION];
  double *features; // (order, heads * value_size): output of the output norm for each element
  double margin;    // minimum of |f|^2 - f . f' over pairs of elements, relative to |f|^2; 0: the readout is ambiguous
};

void tracker_design(const struct group *group, const struct tracker_options *options, struct tracker *out);
void tracker_free(struct tracker *tracker);
// Writes the checkpoint and returns an exit code.
int tracker_write(const struct tracker *tracker, const char *folder);
// Returns the token of an element. Token 0 begins a word.
static inline int32_t tracker_token(uint32_t element) { return 1 + (int32_t)element; }

// The errors of the worst head; S* is the exact state.
struct state_error {
  double shrunk;        // 1 - |S| / |S*|, which the output norm removes
  double distance;      // |S / |S| - S* / |S*||
  double orthogonality; // largest entry of |S^T S - I| after S is scaled to the norm of S*
};
// state: (heads * key_size, value_size) of DELTAIC_PROBE_STATE; element: the exact group element.
struct state_error tracker_error(const struct tracker *tracker, uint32_t element, const float *state);
#endif
