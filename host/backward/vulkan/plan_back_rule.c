// plan_back_rule: chooses the sizes of the delta rule's backward pass by chunks on cooperative matrices.
#include "plan_back_rule.h"

#include "numbers.h"

#include <string.h>

enum { CHUNK = 16 }; // RULE_MATRIX_CHUNK

// ---------------------------------------------------------------- shared memory: the shaders' variables

uint64_t plan_back_scan_bytes(const struct plan *plan, const struct plan_back_rule *p, bool reverse) {
  const uint64_t subgroups = reverse ? p->reverse : p->states, pitch = p->Dk / 8 + 1, own = p->width * 3;
  const uint64_t staged = (reverse ? 2 : 1) * CHUNK * pitch + 2 * CHUNK * 3 + 3 * CHUNK / 4;
  const uint64_t copy = p->conversions ? 0 : subgroups * p->width * pitch;
  return 16 * (2 * staged + 2 * subgroups * own + copy) + 4 * subgroups * plan->matrix_m * plan->matrix_m;
}

struct plan_back_pool plan_back_pool(const struct plan *plan, const struct plan_back_rule *p) {
  const uint32_t C = p->block, tile = plan->matrix_m, columns = p->grads / p->split * p->own * tile;
  const uint32_t slab = (p->Dk | p->Dv) % 32 == 0 ? 32 : 16, wide = (p->Dk | p->Dv) % 64 == 0 ? 64 : slab;
  const uint32_t slabs = 2 * C * (slab / 8 + 1), pairs = 3 * C * (wide / 8 + 1), decays = C * (C / 4 + 1),
                 staged = C * (columns / 8 + 1), parts = 2 * p->grads * tile * (tile / 4 + 1);
  const uint32_t rows = p->Dk <= columns ? C : p->split * tile, grads = rows * (columns / 4 + 1);
  const uint32_t scores = max32(max32(slabs, decays), max32(staged, parts));
  return (struct plan_back_pool){scores, max32(max32(scores + 2 * C * (C / 8 + 1), grads), pairs)};
}

uint64_t plan_back_grads_bytes(const struct plan *plan, const struct plan_back_rule *p) {
  const uint64_t C = p->block, tile = plan->matrix_m, groups = p->grads / p->split;
  const uint64_t floats = tile * tile + 6 * C + max64(2 * groups * C, tile * (C + tile)) + p->grads;
  return 16ull * plan_back_pool(plan, p).all + 4 * floats;
}

// ---------------------------------------------------------------- sizes

// The largest divisor of the value dimension's parts, so that no subgroup has none.
static uint32_t scan_subgroups(const struct plan_back_rule *p, uint32_t most) {
  const uint32_t parts = p->Dv / p->width;
  uint32_t n = parts < most ? parts : most;
  while (parts % n) n--;
  return n;
}

static bool fits(const struct plan *plan, uint64_t bytes, uint32_t subgroups) {
  return bytes <= plan->shared_bytes && subgroups * plan->matrix_lanes <= plan->most_lanes;
}

static bool plan_scan(const struct plan *plan, struct plan_back_rule *p, bool reverse) {
  uint32_t *subgroups = reverse ? &p->reverse : &p->states;
  for (uint32_t most = 4; most > 0; most--) {
    *subgroups = scan_subgroups(p, most);
    if (fits(plan, plan_back_scan_bytes(plan, p, reverse), *subgroups)) return true;
  }
  return false;
}

// Long blocks keep fewer states. In software, whose compiler takes long over them, they are short. Pairs of steps keep
// a few subgroups busy even where keys have few columns. A subgroup's registers hold two sums for each of its tiles of
// steps and columns, and those of pairs beside them. With two tiles of columns it loads half of the left operands, where
// that leaves enough subgroups.
static bool plan_grads(const struct plan *plan, struct plan_back_rule *p) {
  for (p->block = plan->software ? 16 : 64; p->block >= CHUNK; p->block -= CHUNK) {
    const uint32_t tiles = p->block / plan->matrix_m, columns = p->Dk / plan->matrix_m;
    for (p->split = 1; 3 * tiles > plan->matrix_sums * p->split && tiles % (2 * p->split) == 0;) p->split *= 2;
    const uint32_t few = plan->software ? 2 : 4;
    p->own = p->split == 1 && columns % (2 * few) == 0 && 4 * tiles <= plan->matrix_sums ? 2 : 1;
    const uint32_t most = !plan->software && (p->split > 1 || columns / p->own >= 8) ? 8 : few;
    for (p->grads = most; p->grads >= p->split; p->grads /= 2)
      if (fits(plan, plan_back_grads_bytes(plan, p), p->grads)) return true;
  }
  return false;
}

bool plan_back_rule(const struct plan *plan, uint32_t Dk, uint32_t Dv, uint32_t heads, bool conversions,
                    struct plan_back_rule *p) {
  memset(p, 0, sizeof *p);
  if (!plan->matrix_mixers || plan->matrix_m != plan->matrix_n || plan->matrix_n != plan->matrix_k) return false;
  p->conversions = conversions && plan->matrix_conversions;
  p->lockstep = plan->software;
  p->Dk = round_up32(Dk, 16);
  p->Dv = round_up32(Dv, 16);
  // Numbers of the state that a subgroup's registers hold.
  const uint32_t most = plan->matrix_sums * 8 * plan->matrix_lanes;
  // A subgroup of twice the columns reads half the keys; it takes twice the registers and leaves half the workgroups.
  const bool many = p->Dv % 128 == 0 && heads * (p->Dv / 128) >= 2 * plan->processors;
  p->width = many && 32 * p->Dk <= most ? 32 : 16;
  if (16 * p->Dk > most) return false;
  p->prepare = (struct plan_delta_matrix){.r = 1, .block = p->Dk, .C = CHUNK, .Dk = p->Dk};
  plan_delta_prepare(plan, 1, &p->prepare);
  return plan_scan(plan, p, false) && plan_scan(plan, p, true) && plan_grads(plan, p);
}
