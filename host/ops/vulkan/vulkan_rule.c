// vulkan_rule: the delta rule token by token, for heads of any size and for those of whole vectors. A recording is
// replayed with other sequences, as in vulkan_mix.c.
#include "vulkan_backend.h"

#include "delta_rule_fours.h"

static_assert(HH_GIVEN == HH_NONNEG_GIVEN && HH_SOFTPLUS == HH_NONNEG_SOFTPLUS && HH_SIGMOID == HH_NONNEG_SIGMOID &&
                  HH_EXP == HH_NONNEG_EXP,
              "shaders and host number what makes masks non-negative alike");

// How invocations share the rows of a head's r blocks: a block is cut into `sub` parts, and an invocation holds `per`
// parts.
struct deal {
  uint32_t columns, sub, per;
};

static uint32_t split_of(const struct deal *p, uint32_t r) { return r * p->sub / p->per; }

// Gives an invocation about plan->rule_rows rows, within the plan's limit of invocations per workgroup. sub or per is
// 1.
static struct deal deal_rows(const struct plan_rules *plan, const struct delta_args *a, uint32_t r) {
  const uint32_t d = a->Dk / r, most = max32(plan->device->lanes, 128);
  struct deal p = {plan->rule_columns, divide_up(d, plan->rule_rows), 1};
  while (r == 1 && p.sub > 1 && p.sub * p.columns > most) p.sub--;
  while (p.columns > 8 && p.columns / 2 >= a->Dv) p.columns /= 2;
  for (uint32_t per = 2; per <= r && per * d <= plan->rule_rows; per++)
    if (r % per == 0) p.per = per;
  while (p.sub > 1 && split_of(&p, r) * p.columns > most) p.sub--;
  while (p.per < r && split_of(&p, r) * p.columns > most) {
    do p.per++;
    while (r % p.per);
  }
  return p;
}

// Any heads and blocks.
static void by_columns(struct recorder *c, const struct delta_call *d, const struct delta_rule_args *args,
                       uint64_t operations) {
  enum { STAGED = 2048 }; // elements of q, k and masks in shared memory (8 KiB), unless one token needs more
  const struct delta_args *a = &d->rule.a;
  const uint32_t r = max32(a->r, 1);
  const struct deal p = deal_rows(vulkan_rules(c), a, r);
  const uint32_t padded = r * p.sub * divide_up(divide_up(a->Dk / r, p.sub), 4) * 4;
  const uint32_t token = (a->n + 1) * padded + (r > 1 ? r * (r + divide_up(r, 4) * 4) : 0);
  const uint32_t spec[DELTA_RULE_SPECS] = {[DELTA_RULE_SPEC_LANES] = p.columns * split_of(&p, r),
                                           [DELTA_RULE_SPEC_D] = a->Dk / r,
                                           [DELTA_RULE_SPEC_R] = r,
                                           [DELTA_RULE_SPEC_N] = a->n,
                                           [DELTA_RULE_SPEC_COLUMNS] = p.columns,
                                           [DELTA_RULE_SPEC_SUB] = p.sub,
                                           [DELTA_RULE_SPEC_PER] = p.per,
                                           [DELTA_RULE_SPEC_BLOCK] = max32(min32(STAGED / token, 16), 1),
                                           [DELTA_RULE_SPEC_ALIGNED] = d->aligned,
                                           [DELTA_RULE_SPEC_NONNEG] = r > 1 ? a->nonneg : HH_NONNEG_GIVEN};
  const struct binding bindings[DELTA_RULE_BINDINGS] = {[DELTA_RULE_O] = vulkan_bind(d->rule.o, d->rule.o),
                                                        [DELTA_RULE_QKV] = vulkan_bind(d->rule.qkv, d->rule.qkv),
                                                        [DELTA_RULE_BETA] = vulkan_bind(d->rule.beta, d->rule.qkv),
                                                        [DELTA_RULE_G] = vulkan_bind(d->rule.g, d->rule.qkv),
                                                        [DELTA_RULE_MASK] = vulkan_bind(d->rule.mask, d->rule.qkv),
                                                        [DELTA_RULE_STATE] = vulkan_bind(d->rule.state, d->rule.o),
                                                        [DELTA_RULE_SEQUENCES] =
                                                            vulkan_bind(d->rule.sequences, d->rule.qkv)};
  vulkan_dispatch(c, KERNEL_delta_rule, spec, bindings, args,
                  (struct grid){divide_up(a->Dv, p.columns), a->Hv, d->rule.sequences.rows}, operations);
}

// Four columns per invocation. False: such heads, or tensors, do not suit it.
static bool by_fours(struct recorder *c, const struct delta_call *d, const struct delta_rule_args *args,
                     uint64_t operations) {
  const struct delta_args *a = &d->rule.a;
  const struct plan_rules *rules = vulkan_rules(c);
  struct plan_rule_fours f;
  if (a->r > 1 || d->rule.qkv.stride % 4 || d->rule.state.stride % 4 ||
      !plan_rule_fours(rules, a->Dk, a->Dv, a->n, a->Hv * d->rule.sequences.rows, &f))
    return false;
  const uint32_t spec[DELTA_RULE_FOURS_SPECS] = {[DELTA_RULE_FOURS_SPEC_LANES] = f.lanes,
                                                 [DELTA_RULE_FOURS_SPEC_DK] = a->Dk,
                                                 [DELTA_RULE_FOURS_SPEC_DV] = a->Dv,
                                                 [DELTA_RULE_FOURS_SPEC_N] = a->n,
                                                 [DELTA_RULE_FOURS_SPEC_WIDTH] = rules->step_width,
                                                 [DELTA_RULE_FOURS_SPEC_GROUPS] = f.groups,
                                                 [DELTA_RULE_FOURS_SPEC_BLOCK] = f.block,
                                                 [DELTA_RULE_FOURS_SPEC_AHEAD] = f.ahead};
  const struct tensor qkv = d->rule.qkv;
  const struct binding bindings[DELTA_RULE_FOURS_BINDINGS] = {
      [DELTA_RULE_FOURS_O] = vulkan_bind(d->rule.o, d->rule.o),
      [DELTA_RULE_FOURS_QKV] = vulkan_bind(qkv, qkv),
      [DELTA_RULE_FOURS_BETA] = vulkan_bind(d->rule.beta, qkv),
      [DELTA_RULE_FOURS_G] = vulkan_bind(d->rule.g, qkv),
      [DELTA_RULE_FOURS_STATE] = vulkan_bind(d->rule.state, d->rule.o),
      [DELTA_RULE_FOURS_SEQUENCES] = vulkan_bind(d->rule.sequences, qkv)};
  const uint32_t columns = f.lanes / rules->step_width * 4 * f.groups;
  vulkan_dispatch(c, KERNEL_delta_rule_fours, spec, bindings, args,
                  (struct grid){divide_up(a->Dv, columns), a->Hv, d->rule.sequences.rows}, operations);
  return true;
}

void vulkan_delta_tokens(struct recorder *c, const struct delta_call *d) {
  const struct delta_args *a = &d->rule.a;
  const struct delta_rule_args args = {.H = a->H,
                                       .Hv = a->Hv,
                                       .share = delta_share(a),
                                       .Dv = a->Dv,
                                       .gated = a->gated,
                                       .scale = a->scale,
                                       .o_stride = d->rule.o.stride,
                                       .qkv_stride = d->rule.qkv.stride,
                                       .beta_stride = d->rule.beta.stride,
                                       .g_stride = d->rule.g.stride,
                                       .mask_stride = a->fixed_mask ? 0 : d->rule.mask.stride,
                                       .state_stride = d->rule.state.stride};
  const uint64_t products = (uint64_t)a->Dk * (2 * a->n + 1) + (a->r > 1 ? a->r * a->r : 0);
  const uint64_t operations = 2ull * d->rule.qkv.rows * a->Hv * a->Dv * products;
  if (!by_fours(c, d, &args, operations)) by_columns(c, d, &args, operations);
}
