// ops_vulkan_step: one token of every sequence through a delta layer, between its products, in one dispatch, or, where
// no workgroup holds a whole head, in two.
#include "ops_vulkan.h"

#include "delta_step.h"

static struct hh_args rule_of(const struct delta_step *s) {
  const struct delta_args *a = &s->rule;
  if (s->hh.r > 1) return s->hh;
  return (struct hh_args){
      .H = a->H, .Hv = a->Hv, .Dk = a->Dk, .Dv = a->Dv, .r = 1, .scale = a->scale, .gated = a->gated};
}

bool vulkan_delta_step(struct recorder *c, const struct delta_step *s) {
  const struct hh_args a = rule_of(s);
  const uint32_t n = a.r > 1 ? 1 : s->rule.n;
  struct plan_step p;
  if (vulkan_device(c->backend)->caps.max_storage_buffers < DELTA_STEP_BINDINGS) return false;
  if (!plan_step(vulkan_plan(c), a.Dk, a.Dv, n, a.r, &p)) return false;
  const bool norm = s->norm.buffer != NULL, apart = norm && !p.whole;
  const uint32_t spec[DELTA_STEP_SPECS] = {[DELTA_STEP_SPEC_LANES] = p.columns * a.r * p.sub,
                                           [DELTA_STEP_SPEC_D] = a.Dk / a.r,
                                           [DELTA_STEP_SPEC_R] = a.r,
                                           [DELTA_STEP_SPEC_N] = n,
                                           [DELTA_STEP_SPEC_COLUMNS] = p.columns,
                                           [DELTA_STEP_SPEC_SUB] = p.sub,
                                           [DELTA_STEP_SPEC_NORM] = norm && !apart,
                                           [DELTA_STEP_SPEC_NONNEG] = a.nonneg};
  const struct binding bindings[DELTA_STEP_BINDINGS] = {[DELTA_STEP_O] = vulkan_bind(s->o, s->o),
                                                        [DELTA_STEP_QKV] = vulkan_bind(s->qkv, s->o),
                                                        [DELTA_STEP_BA] = vulkan_bind(s->ba, s->qkv),
                                                        [DELTA_STEP_A_LOG] = vulkan_bind(s->A_log, s->qkv),
                                                        [DELTA_STEP_DT_BIAS] = vulkan_bind(s->dt_bias, s->qkv),
                                                        [DELTA_STEP_MASK] = vulkan_bind(s->mask, s->qkv),
                                                        [DELTA_STEP_STATE] = vulkan_bind(s->state, s->o),
                                                        [DELTA_STEP_SEQUENCES] = vulkan_bind(s->sequences, s->qkv),
                                                        [DELTA_STEP_GATE] = vulkan_bind(s->gate, s->qkv),
                                                        [DELTA_STEP_NORM_WEIGHT] = vulkan_bind(s->norm, s->qkv)};
  const struct delta_step_args args = {.H = a.H,
                                       .Hv = a.Hv,
                                       .Dv = a.Dv,
                                       .activation = s->inputs.activation,
                                       .key_norm = s->inputs.norm,
                                       .has_beta = s->inputs.has_beta,
                                       .gated = a.gated,
                                       .has_gate = s->gate.buffer && !apart,
                                       .beta_scale = s->inputs.beta_scale,
                                       .scale = a.scale,
                                       .eps = s->eps,
                                       .o_stride = s->o.stride,
                                       .qkv_stride = s->qkv.stride,
                                       .ba_stride = s->ba.stride,
                                       .mask_stride = a.fixed_mask ? 0 : s->mask.stride,
                                       .state_stride = s->state.stride,
                                       .gate_stride = s->gate.stride};
  assert(!norm || s->norm.cols == a.Dv);
  uint64_t operations = 2ull * s->qkv.rows * a.Hv * a.Dk * a.Dv * (2 * n + 1);
  vulkan_dispatch(c, KERNEL_delta_step_f32 + s->o.dtype, spec, bindings, &args, divide_up(a.Dv, p.columns), a.Hv,
                  s->sequences.rows, operations);
  if (apart) vulkan_output_norm(c, s->o, s->gate, s->norm, a.Hv, s->eps);
  return true;
}
