// plan_matvec: chooses the sizes of the product kernels for one token and a few.
#include "plan_matmul.h"

#include "numbers.h"

// A workgroup reads x once for all its rows, so more tokens call for more rows. For one token more rows gain nothing,
// and single rows balance best (H200). Long rows are shared by more invocations, or the last workgroups would run alone
// for long. More invocations share each row of one token's product if reading its inputs again is cheap, which it is
// without a norm, or if there are few rows. With a norm, gate and up compute it once for many rows. Rows that are
// shorter than a subgroup's loads (an adapter's B) leave lanes idle: then a workgroup takes many, and each lane
// finishes one.
struct plan_matvec plan_matvec(const struct plan_products *plan, uint32_t K, uint32_t N, uint32_t tokens, bool norm,
                               bool gated) {
  enum { SUMS = 32, LOADS = 12, STAGED_FROM = 2048, SHORT_ROWS = 16 };
  struct plan_matvec m = {.lanes = plan->matvec_lanes, .rows = plan->matvec_rows, .sets = 1};
  uint32_t x_rows = tokens + norm; // rows of x and of the norm's weight
  if (m.rows < x_rows) m.rows = min32(x_rows, plan->matvec_most_rows);
  m.rows = min32(m.rows, SUMS / tokens);
  if (gated) m.rows = (m.rows + 1) / 2; // as many rows of gate as of up
  while (m.lanes < plan->matvec_most_lanes && K / 8 > LOADS * m.lanes) m.lanes *= 2;
  m.unroll = plan->matvec_unroll > tokens ? plan->matvec_unroll / tokens : 1;
  if (K / 8 < m.lanes) {
    const uint32_t most_rows = SHORT_ROWS / tokens / (gated ? 2 : 1);
    while (2 * m.rows <= most_rows && N / (2 * m.rows) >= plan->device->processors) m.rows *= 2;
    m.unroll = 1;
  }
  const uint32_t most = min32(plan->matvec_most_lanes, 4 * plan->matvec_lanes);
  if (tokens == 1 && (!norm || N <= m.rows * 2 * plan->device->processors) && most > m.lanes) {
    while (m.lanes < most && K / 8 >= 4 * m.lanes) m.lanes *= 2;
    m.unroll = (m.unroll + 1) / 2;
  }
  if (tokens == 1 && gated && norm && plan->matvec_sets > 1 && m.lanes == plan->matvec_lanes && K >= STAGED_FROM &&
      K % (16 * m.lanes) == 0 && 8 * K <= plan->device->shared_bytes) {
    m.sets = plan->matvec_sets;
    m.unroll = 2;
  }
  return m;
}

static uint64_t dot_shared_bytes(const struct plan_dot *m, uint32_t all, uint32_t width, bool gated) {
  const uint64_t rows = m->rows * (gated ? 2 : 1);
  return 4 * (16ull * (all + 4) + all + m->lanes / width * (rows + 1));
}

// A lane keeps 32 inputs for all rows of its team, or more if a team of so many lanes would be too large. Making the
// integers of x and starting a workgroup take as long as many rows, so each processor gets one large workgroup, and all
// get as many rows. Where workgroups would have more rows than they keep sums of, several follow each other.
bool plan_dot(const struct plan_products *plan, uint32_t K, uint32_t N, bool gated, uint32_t processors,
              struct plan_dot *out) {
  enum { GROUPS_MOST = 4, ROWS_MOST = 64 };
  const struct plan *device = plan->device;
  const uint32_t width = device->subgroup_width, all = K / 32, halves = gated ? 2 : 1;
  const uint32_t most = min32(plan->dot_lanes, device->most_lanes);
  if (!plan->dots || !width || width % 8 || K % 32 || most < width) return false;
  uint32_t groups = 1;
  while (groups < GROUPS_MOST && divide_up(all, groups) > most / width * width) groups *= 2;
  const uint32_t team = (uint32_t)round_up(divide_up(all, groups), width);
  if (team > most) return false;
  *out = (struct plan_dot){.teams = groups > 1 ? 1 : most / team, .ahead = plan->dot_ahead};
  while (out->teams > 1 && N < out->teams * out->ahead * (processors - processors / 8)) out->teams /= 2;
  while (out->ahead > halves && N < out->teams * out->ahead * processors) out->ahead /= 2;
  out->lanes = out->teams * team;
  for (uint32_t turns = 1;; turns++) {
    const uint32_t fair = divide_up(divide_up(N, out->teams), processors * turns);
    const uint32_t each = plan->dot_rows ? plan->dot_rows : fair;
    out->rows = (uint32_t)round_up(each, halves) / halves;
    if (each <= ROWS_MOST && dot_shared_bytes(out, all, width, gated) <= device->shared_bytes) return true;
    if (each == 1 || plan->dot_rows) return false;
  }
}
