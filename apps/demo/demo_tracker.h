// demo_tracker: a one-layer DeltaProduct that solves a group's word problem, by construction (docs/demos.md).
#ifndef DEMO_TRACKER_H
#define DEMO_TRACKER_H
#include "demo_groups.h"

enum { TRACKER_HEADS = 8 };

struct tracker_options {
  uint32_t steps;    // Householder steps of a token; fewer than the group's: the construction with what fits
  uint32_t heads;    // 0: as many as suit the group
  uint32_t copies;   // of each coordinate of a representation; 0: 16
  bool no_negatives; // beta in (0, 1): no reflections
  bool bf16;         // weights in bfloat16
};

// Head h holds S = spread(R(g) start) of one representation and reads o = S^T q.
struct tracker {
  const struct group *group;
  struct tracker_options options; // resolved
  uint32_t key_size, value_size;
  uint32_t representation[TRACKER_HEADS];
  double query[TRACKER_HEADS][GROUP_DIMENSION];
  double *features; // (order, heads * value_size): the output norm's result at each element
  double margin;    // least of |f|^2 - f . f' over pairs of elements, relative to |f|^2; 0: the readout cannot tell
};

void tracker_design(const struct group *group, const struct tracker_options *options, struct tracker *out);
void tracker_free(struct tracker *tracker);
// Writes the checkpoint; an exit code.
int tracker_write(const struct tracker *tracker, const char *folder);
// Token 0 begins a word; this is the token of an element.
static inline int32_t tracker_token(uint32_t element) { return 1 + (int32_t)element; }

// The worst head's, S* being the true state.
struct state_error {
  double shrunk;        // 1 - |S| / |S*|: the output norm takes it away
  double distance;      // |S / |S| - S* / |S*||
  double orthogonality; // worst entry of |S^T S - I|, S made as long as S*: angles and lengths that should have stayed
};
// state: (heads * key_size, value_size), as DELTAIC_PROBE_STATE gives it, at a group element.
struct state_error tracker_error(const struct tracker *tracker, uint32_t element, const float *state);
#endif
