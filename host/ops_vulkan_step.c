// ops_vulkan_step: one token of every sequence through a delta layer, between its products, in one dispatch, or, where
// no workgroup holds a whole head, in two.
#include "ops_vulkan.h"

#include "delta_step_fours.h"

static struct hh_args rule_of(const struct delta_step *s) {
  const struct delta_args *a = &s->rule;
  if (s->hh.r > 1) return s->hh;
  return (struct hh_args){
      .H = a->H, .Hv = a->Hv, .Dk = a->Dk, .Dv = a->Dv, .r = 1, .scale = a->scale, .gated = a->gated};
}

struct step_bindings {
  struct binding of[DELTA_STEP_BINDINGS];
};

static struct step_bindings bindings_of(const struct delta_step *s) {
  return (struct step_bindings){{[DELTA_STEP_O] = vulkan_bind(s->o, s->o),
                                 [DELTA_STEP_QKV] = vulkan_bind(s->qkv, s->o),
                                 [DELTA_STEP_BA] = vulkan_bind(s->ba, s->qkv),
                                 [DELTA_STEP_A_LOG] = vulkan_bind(s->A_log, s->qkv),
                                 [DELTA_STEP_DT_BIAS] = vulkan_bind(s->dt_bias, s->qkv),
                                 [DELTA_STEP_STATE] = vulkan_bind(s->state, s->o),
                                 [DELTA_STEP_SEQUENCES] = vulkan_bind(s->sequences, s->qkv),
                                 [DELTA_STEP_GATE] = vulkan_bind(s->gate, s->qkv),
                                 [DELTA_STEP_NORM_WEIGHT] = vulkan_bind(s->norm, s->qkv),
                                 [DELTA_STEP_MASK] = vulkan_bind(s->mask, s->qkv)}};
}

static struct delta_step_args args_of(const struct delta_step *s, const struct hh_args *a, bool apart) {
  return (struct delta_step_args){.H = a->H,
                                  .Hv = a->Hv,
                                  .Dv = a->Dv,
                                  .has_beta = s->inputs.has_beta,
                                  .gated = a->gated,
                                  .has_gate = s->gate.buffer && !apart,
                                  .beta_scale = s->inputs.beta_scale,
                                  .scale = a->scale,
                                  .eps = s->eps,
                                  .o_stride = s->o.stride,
                                  .qkv_stride = s->qkv.stride,
                                  .ba_stride = s->ba.stride,
                                  .mask_stride = a->fixed_mask ? 0 : s->mask.stride,
                                  .state_stride = s->state.stride,
                                  .gate_stride = s->gate.stride};
}

static void step(struct recorder *c, const struct delta_step *s, const struct hh_args *a, uint32_t n,
                 const struct plan_step *p, bool apart, uint64_t operations) {
  const uint32_t spec[DELTA_STEP_SPECS] = {[DELTA_STEP_SPEC_LANES] = p->columns * a->r * p->sub,
                                           [DELTA_STEP_SPEC_D] = a->Dk / a->r,
                                           [DELTA_STEP_SPEC_R] = a->r,
                                           [DELTA_STEP_SPEC_N] = n,
                                           [DELTA_STEP_SPEC_COLUMNS] = p->columns,
                                           [DELTA_STEP_SPEC_SUB] = p->sub,
                                           [DELTA_STEP_SPEC_NORM] = s->norm.buffer && !apart,
                                           [DELTA_STEP_SPEC_NONNEG] = a->nonneg,
                                           [DELTA_STEP_SPEC_ACTIVATION] = s->inputs.activation,
                                           [DELTA_STEP_SPEC_KEY_NORM] = s->inputs.norm};
  const struct step_bindings bindings = bindings_of(s);
  const struct delta_step_args args = args_of(s, a, apart);
  vulkan_dispatch(c, kernel_variant(FAMILY_delta_step, s->o.dtype), spec, bindings.of, &args,
                  divide_up(a->Dv, p->columns), a->Hv, s->sequences.rows, operations);
}

// The form of four columns an invocation, where rows are of whole vectors.
static bool fours(const struct plan *plan, const struct delta_step *s, const struct hh_args *a, uint32_t n,
                  struct plan_step_fours *p) {
  const bool apart = s->o.stride % 4 || s->qkv.stride % 4 || (s->gate.buffer && s->gate.stride % 4);
  return n == 1 && a->r == 1 && !apart &&
         plan_step_fours(plan, a->Dk, a->Dv, s->sequences.rows * a->Hv, s->norm.buffer != NULL, p);
}

static void step_fours(struct recorder *c, const struct delta_step *s, const struct hh_args *a,
                       const struct plan_step_fours *p, bool apart, uint64_t operations) {
  const uint32_t width = vulkan_plan(c)->step_width;
  const uint32_t spec[DELTA_STEP_FOURS_SPECS] = {[DELTA_STEP_FOURS_SPEC_LANES] = p->lanes,
                                                 [DELTA_STEP_FOURS_SPEC_DK] = a->Dk,
                                                 [DELTA_STEP_FOURS_SPEC_DV] = a->Dv,
                                                 [DELTA_STEP_FOURS_SPEC_WIDTH] = width,
                                                 [DELTA_STEP_FOURS_SPEC_GROUPS] = p->groups,
                                                 [DELTA_STEP_FOURS_SPEC_NORM] = s->norm.buffer && !apart,
                                                 [DELTA_STEP_FOURS_SPEC_ACTIVATION] = s->inputs.activation,
                                                 [DELTA_STEP_FOURS_SPEC_KEY_NORM] = s->inputs.norm,
                                                 [DELTA_STEP_FOURS_SPEC_LONE] =
                                                     s->sequences.rows == 1 && s->qkv.rows == 1 && s->state.rows == 1};
  const struct step_bindings bindings = bindings_of(s);
  const struct delta_step_args args = args_of(s, a, apart);
  vulkan_dispatch(c, kernel_variant(FAMILY_delta_step_fours, s->o.dtype), spec, bindings.of, &args,
                  divide_up(a->Dv, p->lanes / width * 4 * p->groups), a->Hv, s->sequences.rows, operations);
}

bool vulkan_delta_step(struct recorder *c, const struct delta_step *s) {
  const struct hh_args a = rule_of(s);
  const uint32_t n = a.r > 1 ? 1 : s->rule.n;
  const bool norm = s->norm.buffer != NULL;
  const uint64_t operations = 2ull * s->qkv.rows * a.Hv * a.Dk * a.Dv * (2 * n + 1);
  struct plan_step p;
  struct plan_step_fours f;
  if (vulkan_device(c->backend)->caps.max_storage_buffers < DELTA_STEP_BINDINGS) return false;
  assert(!norm || s->norm.cols == a.Dv);
  const bool by_columns = plan_step(vulkan_plan(c), a.Dk, a.Dv, n, a.r, &p);
  const bool by_fours = fours(vulkan_plan(c), s, &a, n, &f) && (!norm || f.whole || !by_columns || !p.whole);
  if (!by_columns && !by_fours) return false;
  const bool apart = norm && !(by_fours ? f.whole : p.whole);
  if (by_fours)
    step_fours(c, s, &a, &f, apart, operations);
  else
    step(c, s, &a, n, &p, apart, operations);
  if (apart) vulkan_output_norm(c, s->o, s->gate, s->norm, a.Hv, s->eps);
  return true;
}
