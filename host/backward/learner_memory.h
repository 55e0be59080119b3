// learner_memory.h: what a learner and a trainer have on their device, in bytes.
#ifndef LEARNER_MEMORY_H
#define LEARNER_MEMORY_H
#include "trainer.h"

struct learner_memory {
  uint64_t weights;
  uint64_t gradients; // of weights
  uint64_t streams;   // at the entry of every layer, with what belongs to a batch
  uint64_t values;    // of a layer, and their gradients
  uint64_t kept;      // values of layers, for the backward pass
  uint64_t states;    // and their gradients
  uint64_t scratch;   // of an operation's backward pass, logits, copies in f16
};
struct learner_memory learner_memory(const struct learner *l);
// What AdamW and adapters need besides.
struct trainer_memory {
  uint64_t moments, adapters;
};
struct trainer_memory trainer_memory(const struct trainer *t);
#endif
