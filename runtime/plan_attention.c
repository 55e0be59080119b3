// plan_attention: shapes of the attention kernels.
#include "plan.h"

static uint32_t min32(uint32_t a, uint32_t b) { return a < b ? a : b; }

// The shared variables of attention_step.comp, each from a multiple of 16 bytes; test_plan compares with the module.
uint64_t plan_attention_step_bytes(const struct plan_attention_step *s, uint32_t d) {
  return 16ull * s->queries * ((d + 3) / 4) + 24ull * s->queries * s->lanes + 16;
}

// As many parts as keep the device busy, or as the cache has strips; a workgroup joins at most `lanes`.
void plan_attention_step(const struct plan *plan, uint32_t heads, uint32_t kv_heads, uint32_t d, uint32_t B,
                         uint32_t seen, struct plan_attention_step *s) {
  enum { LANES = 256, QUERIES = 8 };
  const uint32_t group = heads / kv_heads;
  s->lanes = min32(plan->lanes, LANES);
  for (s->queries = min32(group, QUERIES); s->queries > 1; s->queries--)
    if (plan_attention_step_bytes(s, d) <= plan->shared_bytes) break;
  // The same number in each workgroup of a group, or nearly.
  const uint32_t shares = (group + s->queries - 1) / s->queries;
  s->queries = (group + shares - 1) / shares;
  s->across = kv_heads * shares;
  const uint64_t groups = (uint64_t)s->across * B;
  const uint32_t strips = (uint32_t)(((uint64_t)seen + s->lanes - 1) / s->lanes);
  s->parts = min32(min32(strips, s->lanes), (uint32_t)((plan->step_groups + groups - 1) / groups));
}
