// plan_attention: chooses the sizes of the attention kernels.
#include "plan_attention.h"

#include "attention_matrix.h"
#include "numbers.h"

// The shared variables of attention_step.comp, each aligned to 16 bytes; test_plan compares this with the module.
uint64_t plan_attention_step_bytes(const struct plan_attention_step *s, uint32_t d) {
  return 16ull * (s->queries + 2) * ((d + 3) / 4) + 24ull * s->queries * s->lanes + 16;
}

// Enough parts to keep the device busy, but no more than the cache has runs of keys. A workgroup joins at most `lanes`
// parts. With more than two query heads, a workgroup takes so many registers that it reads a long history more slowly,
// and so much code that a short history waits for the code (H200). Workgroups that share a part find its keys in a
// cache. If there are few parts, processors would be idle, so the heads of a workgroup are spread over them.
void plan_attention_step(const struct plan *plan, uint32_t heads, uint32_t kv_heads, uint32_t d, uint32_t B,
                         uint32_t seen, struct plan_attention_step *s) {
  enum { LANES = 256, QUERIES = 2, BATCH = 8 };
  const uint32_t group = heads / kv_heads;
  const uint32_t readers = (plan->software ? 2 : 4) * plan->processors; // enough to read a cache at full speed
  s->lanes = min32(plan->lanes, LANES);
  s->batch = plan->software ? 1 : BATCH; // software compiles unrolled loops slowly
  for (s->queries = min32(group, QUERIES); s->queries > 1; s->queries--)
    if (plan_attention_step_bytes(s, d) <= plan->shared_bytes) break;
  // Spreads the group's heads evenly over its workgroups.
  const uint32_t shares = (group + s->queries - 1) / s->queries;
  s->queries = (group + shares - 1) / shares;
  s->across = kv_heads * shares;
  const uint64_t groups = (uint64_t)s->across * B;
  const uint32_t run = s->lanes / 4, runs = (uint32_t)(((uint64_t)seen + run - 1) / run);
  s->parts = min32(min32(runs, s->lanes), (uint32_t)((readers + groups - 1) / groups));
  s->single = min32(min32((uint32_t)(plan->processors / groups), s->lanes), s->queries * s->parts);
}

// ---------------------------------------------------------------- on cooperative matrices

// Subgroups of a workgroup: MANY if there are enough workgroups.
enum { MANY = 8, FEW = 4, FEW_IN_SOFTWARE = 2 };

static uint32_t fewest(const struct plan *plan) { return plan->software ? FEW_IN_SOFTWARE : FEW; }

uint64_t plan_attention_matrix_bytes(const struct plan_attention_matrix *m, uint32_t d) {
  return 32ull * m->keys * (round_up32(d, 16) / 8 + 1) + 16ull * m->rows * (m->keys / 4 + 1) +
         round_up32(4 * m->lanes, 16) + 4ull * m->rows;
}

bool plan_attention_matrix(const struct plan *plan, uint32_t heads, uint32_t kv_heads, uint32_t d, uint32_t B,
                           uint32_t T, struct plan_attention_matrix *m) {
  // FETCHED: elements of keys and values that an invocation can hold while it computes. MOST_D: O and Q fill the
  // registers.
  enum { KEYS = 32, MOST_GROUP = 16, MOST_D = 256, FETCHED = 64 };
  if (!plan->matrix_mixers || plan->matrix_lanes % plan->matrix_m) return false;
  if (d > (plan->matrix_sums < 16 ? MOST_D / 2 : MOST_D)) return false; // RDNA3's compiler spills
  const uint32_t group = heads / kv_heads, shares = (group + MOST_GROUP - 1) / MOST_GROUP, lanes = plan->matrix_lanes;
  m->group = (group + shares - 1) / shares;
  m->across = kv_heads * shares;
  m->lockstep = plan->software;
  for (uint32_t subgroups = plan->software ? FEW_IN_SOFTWARE : MANY; subgroups >= fewest(plan); subgroups /= 2) {
    m->lanes = subgroups * lanes;
    m->rows = subgroups * plan->matrix_m;
    m->tokens = m->rows / m->group;
    // Few lanes that load KEYS keys of 128 numbers spill on RDNA3. Software compiles unrolled loops slowly.
    const bool spills =
        plan->matrix_sums < 16 && subgroups < MANY && d > MOST_D / 4 && KEYS / 2 / (lanes / plan->matrix_m) % 8 == 0;
    m->keys = d > MOST_D / 2 || plan->software || spills ? KEYS / 2 : KEYS;
    if (m->keys / (lanes / plan->matrix_m) % 8 || m->keys % plan->matrix_n || m->keys % plan->matrix_k) return false;
    m->ahead = plan->matrix_sums >= 16 && 2 * m->keys * round_up32(d, 16) <= FETCHED * m->lanes;
    const bool fits = m->lanes <= plan->most_lanes && plan_attention_matrix_bytes(m, d) <= plan->shared_bytes;
    const uint64_t groups = (uint64_t)m->across * B * ((T + m->tokens - 1) / m->tokens);
    // With fewer subgroups each staged key serves fewer rows, but there are more workgroups (H200, docs/speed/log.md).
    if (fits && (subgroups == fewest(plan) || 4 * groups > 3 * plan->processors)) return true;
  }
  return false;
}

// Two workgroups a processor, so that there are never more records. LEAST_PROCESSORS: software has fewer, and runs one
// workgroup after the other.
enum { EACH = 2, LEAST_PROCESSORS = 8 };

uint32_t plan_attention_parts(const struct plan *plan, const struct plan_attention_matrix *m, uint64_t groups,
                              uint32_t seen) {
  const uint32_t room = (uint32_t)(EACH * plan->processors / groups);
  const uint32_t parts = min32(room, divide_up(seen, ATTENTION_MATRIX_LEAST));
  const bool few = m->lanes == fewest(plan) * plan->matrix_lanes;
  if (plan->processors < LEAST_PROCESSORS || !few) return 1;
  return room > EACH && parts > 1 ? parts : 1; // two parts of a device that is nearly full gain little
}

uint64_t plan_attention_records(const struct plan *plan, uint32_t d, uint32_t seen) {
  const uint64_t rows = (uint64_t)EACH * plan->processors * fewest(plan) * plan->matrix_m;
  if (plan->processors < LEAST_PROCESSORS || seen <= ATTENTION_MATRIX_LEAST) return 0;
  return 16 * rows * ATTENTION_MATRIX_RECORD(d);
}
