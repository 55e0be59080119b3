// lanes.h: several texts on a device, each in a lane: a session's sequences, as many as fit.
#ifndef LANES_H
#define LANES_H
#include "engine.h"

struct lanes {
  deltaic_session *session;
  uint32_t count;
  uint32_t batch; // tokens of all lanes computed at once
};

// Texts whose states fill half of what is free, or where that is not known, half of what the weights leave; at least 1.
// memory: of a session of one text.
uint64_t lanes_within(const deltaic_device_info *info, const deltaic_memory *memory);

// least: as many as there must be; most: more are of no use; context: tokens of the longest text. options->sequences
// and
// ->batch are followed where they are not 0. An exit code.
int lanes_open(struct lanes *lanes, const struct engine *engine, const struct engine_options *options, uint32_t least,
               uint64_t most, uint64_t context);
void lanes_close(struct lanes *lanes);
#endif
