// eval_lanes.h: several texts on a device, each in a lane: read on, copied, drawn from.
#ifndef EVAL_LANES_H
#define EVAL_LANES_H
#include "engine.h"

struct lanes {
  deltaic_session **sessions; // one for each lane
  uint32_t count;
  void *state; // of a lane on its way to another
  size_t state_capacity;
};

// Tokens for one lane.
struct lane_work {
  uint32_t lane;
  const int32_t *ids;
  size_t count;
  float *logits; // (count, V), or NULL
};

// context: most tokens of a text. An exit code.
int lanes_open(struct lanes *lanes, const struct engine *engine, const struct engine_options *options, uint32_t count,
               uint64_t context);
void lanes_close(struct lanes *lanes);
deltaic_status lanes_reset(struct lanes *lanes, uint32_t lane);
deltaic_status lanes_copy(struct lanes *lanes, uint32_t to, uint32_t from);
// Different lanes.
deltaic_status lanes_eval(struct lanes *lanes, const struct lane_work *work, size_t count);
// The likeliest next token of each lane, which its text is continued by.
deltaic_status lanes_next(struct lanes *lanes, const uint32_t *which, size_t count, int32_t *tokens);
#endif
