// learner_memory: see learner_memory.h.
#include "learner_memory.h"

#include "learner_inside.h"

static uint64_t arena_bytes(const struct arena *a) {
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < a->block_count; i++) bytes += a->blocks[i].bytes;
  return bytes;
}

struct learner_memory learner_memory(const struct learner *l) {
  struct learner_memory m = {
      .weights = arena_bytes(&l->model.weights.arena),
      .gradients = arena_bytes(&l->gradients),
      .streams = l->streams.bytes + l->sequences.bytes + l->tokens.bytes + l->targets.bytes + l->losses.bytes,
      .values = l->values.bytes + l->value_gradients.bytes,
      .kept = l->kept_bytes,
      .states = arena_bytes(&l->states) + l->state_gradients.bytes,
      .scratch = l->halves.bytes + l->parts.bytes,
  };
  for (int i = 0; i < WALK_ROOMS; i++) m.scratch += l->walk.rooms[i].bytes;
  return m;
}
