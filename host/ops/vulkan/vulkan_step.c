// vulkan_step: the operations of a delta layer between its products, for one token of every sequence, in one dispatch.
// Where no workgroup can hold a whole head, the norm is a second dispatch.
#include "vulkan_backend.h"

#include "delta_step_fours.h"

struct step_bindings {
  struct binding of[DELTA_STEP_BINDINGS];
};

static struct step_bindings bindings_of(const struct delta_step *s, bool apart) {
  const struct tensor none = {0}, qkv = s->inputs->x, gate = s->norm && !apart ? s->norm->gate : none;
  return (struct step_bindings){{[DELTA_STEP_O] = vulkan_bind(s->o, s->o),
                                 [DELTA_STEP_QKV] = vulkan_bind(qkv, s->o),
                                 [DELTA_STEP_BA] = vulkan_bind(s->inputs->ba, qkv),
                                 [DELTA_STEP_A_LOG] = vulkan_bind(s->inputs->A_log, qkv),
                                 [DELTA_STEP_DT_BIAS] = vulkan_bind(s->inputs->dt_bias, qkv),
                                 [DELTA_STEP_STATE] = vulkan_bind(s->rule->state, s->o),
                                 [DELTA_STEP_SEQUENCES] = vulkan_bind(s->rule->sequences, qkv),
                                 [DELTA_STEP_GATE] = vulkan_bind(gate, qkv),
                                 [DELTA_STEP_NORM_WEIGHT] = vulkan_bind(s->norm ? s->norm->weight : none, qkv),
                                 [DELTA_STEP_MASK] = vulkan_bind(s->rule->mask, qkv)}};
}

static struct delta_step_args args_of(const struct delta_step *s, bool apart) {
  const struct delta_args *a = &s->rule->a;
  return (struct delta_step_args){.H = a->H,
                                  .Hv = a->Hv,
                                  .share = delta_share(a),
                                  .Dv = a->Dv,
                                  .has_beta = s->inputs->a.has_beta,
                                  .gated = a->gated,
                                  .has_gate = s->norm && s->norm->gate.buffer && !apart,
                                  .beta_scale = s->inputs->a.beta_scale,
                                  .scale = a->scale,
                                  .eps = s->norm ? s->norm->eps : 0,
                                  .o_stride = s->o.stride,
                                  .qkv_stride = s->inputs->x.stride,
                                  .ba_stride = s->inputs->ba.stride,
                                  .mask_stride = a->fixed_mask ? 0 : s->rule->mask.stride,
                                  .state_stride = s->rule->state.stride,
                                  .gate_stride = s->norm ? s->norm->gate.stride : 0};
}

static bool has_norm(const struct delta_step *s) { return s->norm && s->norm->weight.buffer; }

static void step(struct recorder *c, const struct delta_step *s, const struct plan_step *p, bool apart,
                 uint64_t operations) {
  const struct delta_args *a = &s->rule->a;
  const uint32_t r = max32(a->r, 1);
  const uint32_t spec[DELTA_STEP_SPECS] = {[DELTA_STEP_SPEC_LANES] = p->columns * r * p->sub,
                                           [DELTA_STEP_SPEC_D] = a->Dk / r,
                                           [DELTA_STEP_SPEC_R] = r,
                                           [DELTA_STEP_SPEC_N] = a->n,
                                           [DELTA_STEP_SPEC_COLUMNS] = p->columns,
                                           [DELTA_STEP_SPEC_SUB] = p->sub,
                                           [DELTA_STEP_SPEC_NORM] = has_norm(s) && !apart,
                                           [DELTA_STEP_SPEC_NONNEG] = r > 1 ? a->nonneg : HH_NONNEG_GIVEN,
                                           [DELTA_STEP_SPEC_ACTIVATION] = s->inputs->a.activation,
                                           [DELTA_STEP_SPEC_KEY_NORM] = s->inputs->a.norm};
  const struct step_bindings bindings = bindings_of(s, apart);
  const struct delta_step_args args = args_of(s, apart);
  vulkan_dispatch(c, kernel_variant(FAMILY_delta_step, s->o.dtype), spec, bindings.of, &args,
                  (struct grid){divide_up(a->Dv, p->columns), a->Hv, s->rule->sequences.rows}, operations);
}

// Whether delta_step_fours.comp applies: four columns per invocation, rows of whole vectors.
static bool fours(const struct plan_rules *plan, const struct delta_step *s, struct plan_step_fours *p) {
  const struct delta_args *a = &s->rule->a;
  const bool apart = s->o.stride % 4 || s->inputs->x.stride % 4 || (s->norm && s->norm->gate.stride % 4);
  return a->n == 1 && a->r <= 1 && !apart &&
         plan_step_fours(plan, a->Dk, a->Dv, s->rule->sequences.rows * a->Hv,
                         s->norm && tensor_present(s->norm->weight), p);
}

static void step_fours(struct recorder *c, const struct delta_step *s, const struct plan_step_fours *p, bool apart,
                       uint64_t operations) {
  const struct delta_args *a = &s->rule->a;
  const uint32_t width = vulkan_rules(c)->step_width;
  const uint32_t spec[DELTA_STEP_FOURS_SPECS] = {[DELTA_STEP_FOURS_SPEC_LANES] = p->lanes,
                                                 [DELTA_STEP_FOURS_SPEC_DK] = a->Dk,
                                                 [DELTA_STEP_FOURS_SPEC_DV] = a->Dv,
                                                 [DELTA_STEP_FOURS_SPEC_WIDTH] = width,
                                                 [DELTA_STEP_FOURS_SPEC_GROUPS] = p->groups,
                                                 [DELTA_STEP_FOURS_SPEC_NORM] = has_norm(s) && !apart,
                                                 [DELTA_STEP_FOURS_SPEC_ACTIVATION] = s->inputs->a.activation,
                                                 [DELTA_STEP_FOURS_SPEC_KEY_NORM] = s->inputs->a.norm,
                                                 [DELTA_STEP_FOURS_SPEC_LONE] = s->rule->sequences.rows == 1 &&
                                                                                s->inputs->x.rows == 1 &&
                                                                                s->rule->state.rows == 1};
  const struct step_bindings bindings = bindings_of(s, apart);
  const struct delta_step_args args = args_of(s, apart);
  vulkan_dispatch(c, kernel_variant(FAMILY_delta_step_fours, s->o.dtype), spec, bindings.of, &args,
                  (struct grid){divide_up(a->Dv, p->lanes / width * 4 * p->groups), a->Hv, s->rule->sequences.rows},
                  operations);
}

bool vulkan_plan_delta_step(const struct recorder *c, const struct delta_step *s, struct delta_step_plan *p) {
  const struct delta_args *a = &s->rule->a;
  const bool norm = s->norm && tensor_present(s->norm->weight);
  if (vulkan_device(c->backend)->caps.max_storage_buffers < DELTA_STEP_BINDINGS) return false;
  assert(!norm || s->norm->weight.cols == a->Dv);
  const bool by_columns = plan_step(vulkan_rules(c), a->Dk, a->Dv, a->n, max32(a->r, 1), &p->p);
  p->fours = fours(vulkan_rules(c), s, &p->f) && (!norm || p->f.whole || !by_columns || !p->p.whole);
  p->apart = norm && !(p->fours ? p->f.whole : p->p.whole);
  return by_columns || p->fours;
}

void vulkan_delta_step(struct recorder *c, const struct delta_step *s, const struct delta_step_plan *p) {
  const struct delta_args *a = &s->rule->a;
  const uint64_t operations = 2ull * s->inputs->x.rows * a->Hv * a->Dk * a->Dv * (2 * a->n + 1);
  if (p->fours)
    step_fours(c, s, &p->f, p->apart, operations);
  else
    step(c, s, &p->p, p->apart, operations);
  if (!p->apart) return;
  struct gated_norm norm = *s->norm;
  norm.x = norm.y; // the step's output is there
  vulkan_gated_norm(c, &norm);
}
