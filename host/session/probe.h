// probe.h: hands activations to a caller while a model runs. A layer records OP_PROBE where a tensor may be looked at;
// the recording is run up to there and begun again.
#ifndef PROBE_H
#define PROBE_H
#include "backend.h"

struct probe {
  uint32_t kinds; // 0: nothing is asked for
  deltaic_probe_function function;
  void *user;
  // Of the call in progress:
  const atomic_bool *cancel;
  uint64_t position; // of the slice's first token
  uint32_t tokens;   // of the slice
  float *data;       // room for one tensor
  uint64_t data_bytes;
  deltaic_status status; // first error; nothing is handed out after it
};

// Hands out the tensor of an OP_PROBE: oplist.look, whose context is the probe. Runs what is recorded and begins again.
void probe_look(void *context, struct recorder *c, const struct probed *p);
void probe_free(struct probe *p);
#endif
