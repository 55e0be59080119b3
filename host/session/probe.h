// probe.h: passes activations to a caller while a model runs. Layers record OP_PROBE after an operation whose tensor a
// caller may want. At each OP_PROBE the recording runs up to there and begins again.
#ifndef PROBE_H
#define PROBE_H
#include "backend.h"

struct probe {
  uint32_t kinds; // 0: none
  deltaic_probe_function function;
  void *user;
  // State of the current call:
  const atomic_bool *cancel;
  uint64_t position; // position of the slice's first token
  uint32_t tokens;   // number of tokens in the slice
  float *data;       // memory for one tensor
  uint64_t data_bytes;
  deltaic_status status; // first error; after it nothing is passed on
};

// Passes on the tensor of an OP_PROBE. This is oplist.look, with the probe as its context: it runs what is recorded and
// begins again.
void probe_look(void *context, struct recorder *c, const struct probed *p);
void probe_free(struct probe *p);
#endif
