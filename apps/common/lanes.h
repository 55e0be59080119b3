// lanes.h: declares lanes, the sequences of one session. It opens as many as fit on the device.
#ifndef LANES_H
#define LANES_H
#include "engine.h"

struct lanes {
  deltaic_session *session;
  uint32_t count;
  uint32_t batch; // tokens of all lanes that are computed at once
};

// Returns the number of sequences, at least 1, whose states fill half of the free memory (if that is unknown, half of
// the memory without the weights). memory: the memory of a session of one sequence.
uint64_t lanes_within(const deltaic_device_info *info, const deltaic_memory *memory);

// least: the required number of lanes. most: the largest useful number. context: tokens of the longest sequence.
// options->sequences and options->batch are used if they are not 0. It returns an exit code.
int lanes_open(struct lanes *lanes, const struct engine *engine, const struct engine_options *options, uint32_t least,
               uint64_t most, uint64_t context);
void lanes_close(struct lanes *lanes);
#endif
