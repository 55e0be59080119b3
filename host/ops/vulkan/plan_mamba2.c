// plan_mamba2: chooses the sizes of Mamba-2's chunks on cooperative matrices.
#include "plan_mamba2.h"

#include "numbers.h"

static uint64_t gates_bytes(const struct plan_mamba2_matrix *m) { return 12ull * m->heads * m->C; }

uint64_t plan_mamba2_state_bytes(const struct plan_mamba2_matrix *m) {
  const uint64_t keys = m->C * (m->N / 8 + 1), values = m->C * (m->P / 8 + 1), own = values;
  return 16 * (keys + values + own) + gates_bytes(m) + 4ull * m->lanes; // and one value per lane for reductions
}

uint64_t plan_mamba2_output_bytes(const struct plan *plan, const struct plan_mamba2_matrix *m) {
  const uint64_t keys = m->C * (m->N / 8 + 1), state = m->N * (m->P / 8 + 1), values = m->C * (m->P / 8 + 1);
  const uint64_t own = m->C * (max32(m->C, plan->matrix_n) / 4 + 1);
  return 16 * ((keys > state ? keys : state) + values + own) + 4ull * m->C + gates_bytes(m);
}

bool plan_mamba2_matrix(const struct plan *plan, uint32_t N, uint32_t P, uint32_t heads, uint32_t groups,
                        uint32_t chunks, struct plan_mamba2_matrix *m) {
  // TOKENS: most tokens of a chunk. HEADS: most heads that share reads of B and C, if enough workgroups remain.
  enum { TOKENS = 64, HEADS = 4, MOST_N = 256, MOST_P = 128 };
  if (!plan->matrix_mixers || plan->matrix_lanes % plan->matrix_m) return false;
  const uint32_t sharers = plan->matrix_lanes / plan->matrix_m, step = max32(plan->matrix_n, plan->matrix_k);
  m->N = round_up32(N, 16);
  m->P = round_up32(P, 16);
  m->lockstep = plan->software;
  if (m->N > (plan->matrix_sums < 16 ? MOST_N / 2 : MOST_N) || m->P > MOST_P) return false; // registers
  for (m->C = plan->software ? TOKENS / 4 : TOKENS; m->C >= step && m->C >= 8 * sharers; m->C /= 2) {
    m->lanes = m->C / plan->matrix_m * plan->matrix_lanes;
    m->heads = 1;
    if (m->C % step || m->lanes > plan->most_lanes || plan_mamba2_output_bytes(plan, m) > plan->shared_bytes ||
        plan_mamba2_state_bytes(m) > plan->shared_bytes)
      continue;
    for (m->heads = HEADS; m->heads > 1; m->heads /= 2) {
      const uint32_t across = (heads / groups + m->heads - 1) / m->heads;
      if (m->heads <= heads / groups && (uint64_t)chunks * groups * across >= 2 * plan->processors &&
          plan_mamba2_output_bytes(plan, m) <= plan->shared_bytes && plan_mamba2_state_bytes(m) <= plan->shared_bytes)
        break;
    }
    m->across = groups * ((heads / groups + m->heads - 1) / m->heads);
    return true;
  }
  return false;
}
