// vulkan_back_rule: the delta rule and Mamba-2, which is the rule without its subtraction: k = B, q = C, v = x,
// beta = dt.
#include "backward_vulkan.h"

#include "rule_back.h"
#include "skip_back.h"

static_assert(HH_GIVEN == HH_NONNEG_GIVEN && HH_SOFTPLUS == HH_NONNEG_SOFTPLUS && HH_SIGMOID == HH_NONNEG_SIGMOID &&
                  HH_EXP == HH_NONNEG_EXP,
              "shaders and host number the masks' functions alike");

struct rule_call {
  struct rule_back_args args;
  uint32_t r;
  bool erases;
  enum hh_nonneg nonneg;
  struct tensor o, qkv, beta, g, mask, state, sequences; // of the operation
  struct tensor gates, parts, states;                    // of the pass
  uint32_t lanes, columns, rows;                         // of a workgroup; rows: of its part of a state
};

// ---------------------------------------------------------------- sizes

static uint64_t shared_bytes(const struct rule_call *v) {
  const uint64_t masks = v->r > 1 ? v->r * v->r : 1;
  return sizeof(float) *
         ((uint64_t)3 * v->rows * v->columns + 2ull * v->r * v->lanes + (1 + masks) * v->columns + v->lanes);
}

// As many columns as shared memory holds: the parts to be added up are then fewest. Rows are rounded up so that few
// pipelines serve many sizes.
static void choose_sizes(struct walk *w, struct rule_call *v) {
  const struct plan *plan = vulkan_plan(w->c);
  v->rows = (uint32_t)round_up(v->args.Dk, 32);
  v->lanes = min32(128, plan->most_lanes);
  v->columns = 16;
  while (shared_bytes(v) > plan->shared_bytes && v->columns > 1) {
    if (v->lanes > 32 && v->lanes > 2 * v->columns && 2ull * v->r * v->lanes > (uint64_t)3 * v->rows * v->columns)
      v->lanes /= 2;
    else
      v->columns /= 2;
  }
  v->args.blocks = divide_up(v->args.Dv, v->columns);
}

static uint32_t masks_of(const struct rule_call *v) { return v->r > 1 ? v->r * v->r : 0; }

static void make_rooms(struct walk *w, struct rule_call *v) {
  struct rule_back_args *a = &v->args;
  const uint64_t steps = (uint64_t)vulkan_longest(w->c, v->qkv) * a->n, masks = masks_of(v);
  a->kept = 1;
  while ((uint64_t)a->kept * a->kept < steps) a->kept++;
  a->room = a->kept + (uint32_t)((steps + a->kept - 1) / a->kept);
  const uint64_t of_block = (a->n + 1ull) * a->Dk + a->n + 1 + masks,
                 part = (uint64_t)a->n * a->Dv + a->blocks * of_block;
  const uint64_t state = (uint64_t)a->room * a->Dk * v->columns, all = (uint64_t)v->sequences.rows * a->Hv * a->blocks;
  const uint64_t heads = (uint64_t)a->T * a->Hv, gates = a->n + 1 + masks;
  a->part = (uint32_t)part;
  v->gates = walk_tensor(w, heads, gates, gates);
  v->parts = walk_tensor(w, heads, part, part);
  v->states = walk_tensor(w, all, state, state);
}

// ---------------------------------------------------------------- dispatches

static void make_gates(struct walk *w, const struct rule_call *v) {
  struct rule_back_args args = v->args;
  args.beta_stride = v->beta.stride;
  args.g_stride = v->g.stride;
  args.mask_stride = v->mask.stride;
  const uint32_t spec[RULE_BACK_GATES_SPECS] = {
      [RULE_BACK_SPEC_LANES] = 32, [RULE_BACK_SPEC_R] = v->r, [RULE_BACK_SPEC_NONNEG] = v->nonneg};
  const struct binding bindings[RULE_BACK_GATES_BINDINGS] = {[RULE_BACK_GATES] = vulkan_bind(v->gates, v->qkv),
                                                             [RULE_BACK_BETA] = vulkan_bind(v->beta, v->qkv),
                                                             [RULE_BACK_G] = vulkan_bind(v->g, v->qkv),
                                                             [RULE_BACK_MASK] = vulkan_bind(v->mask, v->qkv)};
  back_dispatch(w, BACKWARD_rule_back_gates, spec, bindings, &args, back_grid(args.Hv, 32, args.T, 1),
                30ull * v->gates.rows * v->gates.cols);
}

static void walk_states(struct walk *w, const struct rule_call *v) {
  const struct tensor before = walk_before(w, v->state), dstate = walk_gradient(w, v->state);
  const struct tensor d_o = walk_gradient(w, v->o);
  struct rule_back_args args = v->args;
  args.has_before = before.buffer != NULL;
  args.do_stride = d_o.stride;
  args.state_stride = dstate.stride;
  const uint32_t spec[RULE_BACK_SPECS] = {[RULE_BACK_SPEC_LANES] = v->lanes,
                                          [RULE_BACK_SPEC_R] = v->r,
                                          [RULE_BACK_SPEC_COLUMNS] = v->columns,
                                          [RULE_BACK_SPEC_ROWS] = v->rows,
                                          [RULE_BACK_SPEC_ERASES] = v->erases};
  const struct binding bindings[RULE_BACK_BINDINGS] = {
      [RULE_BACK_GATES] = vulkan_bind(v->gates, v->qkv),   [RULE_BACK_PARTS] = vulkan_bind(v->parts, v->qkv),
      [RULE_BACK_QKV] = vulkan_bind(v->qkv, v->qkv),       [RULE_BACK_BEFORE] = vulkan_bind(before, v->qkv),
      [RULE_BACK_DSTATE] = vulkan_bind(dstate, v->qkv),    [RULE_BACK_DO] = vulkan_bind(d_o, v->qkv),
      [RULE_BACK_STATES] = vulkan_bind(v->states, v->qkv), [RULE_BACK_SEQUENCES] = vulkan_bind(v->sequences, v->qkv)};
  back_dispatch(w, BACKWARD_rule_back, spec, bindings, &args, (struct grid){args.blocks, args.Hv, v->sequences.rows},
                18ull * args.T * args.n * args.Hv * args.Dk * args.Dv);
}

static void sum_parts(struct walk *w, const struct rule_call *v) {
  const struct tensor dqkv = walk_gradient(w, v->qkv), dbeta = walk_gradient(w, v->beta), dg = walk_gradient(w, v->g);
  const uint32_t lanes = vulkan_plan(w->c)->block_lanes;
  struct rule_back_args args = v->args;
  args.qkv_stride = dqkv.stride;
  args.beta_stride = dbeta.stride;
  args.g_stride = dg.stride;
  const uint32_t elements = args.H * args.Dk * (1 + args.n) + args.n * args.Hv * (args.Dv + 1) + args.Hv;
  const struct binding bindings[RULE_BACK_SUM_BINDINGS] = {[RULE_BACK_DQKV] = vulkan_bind(dqkv, dqkv),
                                                           [RULE_BACK_PARTS] = vulkan_bind(v->parts, dqkv),
                                                           [RULE_BACK_DBETA] = vulkan_bind(dbeta, dqkv),
                                                           [RULE_BACK_DG] = vulkan_bind(dg, dqkv)};
  back_dispatch(w, BACKWARD_rule_back_sum, &lanes, bindings, &args, back_grid(elements, lanes, args.T, 1),
                (uint64_t)v->parts.rows * v->parts.cols);
}

// The mask's gradient: of every token's logits, or summed over the tokens.
static void sum_masks(struct walk *w, const struct rule_call *v) {
  const struct tensor dmask = walk_gradient(w, v->mask);
  const uint32_t cols = v->args.Hv * masks_of(v);
  if (!cols || !dmask.buffer) return;
  const bool fixed = v->args.fixed_mask;
  const struct tensor to = fixed ? walk_tensor(w, v->args.T, cols, cols) : dmask;
  struct rule_back_args args = v->args;
  args.mask_stride = to.stride;
  args.logits_stride = v->mask.stride;
  if (w->status) return;
  if (fixed) w->functions->clear(w, to);
  const uint32_t spec[RULE_BACK_MASK_SPECS] = {[RULE_BACK_SPEC_LANES] = 32,
                                               [RULE_BACK_SPEC_R] = v->r,
                                               [RULE_BACK_SPEC_NONNEG] = fixed ? HH_NONNEG_GIVEN : v->nonneg};
  const struct binding bindings[RULE_BACK_MASK_BINDINGS] = {[RULE_BACK_DMASK] = vulkan_bind(to, to),
                                                            [RULE_BACK_PARTS] = vulkan_bind(v->parts, to),
                                                            [RULE_BACK_LOGITS] = vulkan_bind(v->mask, v->parts)};
  back_dispatch(w, BACKWARD_rule_back_mask, spec, bindings, &args, back_grid(args.Hv, 32, args.T, 1),
                30ull * args.T * cols);
  if (fixed) back_sum_rows(w, dmask, to, args.T, cols, 0);
}

static void rule_back(struct walk *w, struct rule_call *v) {
  v->args.T = v->qkv.rows;
  v->args.qkv_stride = v->qkv.stride;
  choose_sizes(w, v);
  make_rooms(w, v);
  if (w->status) return;
  make_gates(w, v);
  walk_states(w, v);
  sum_parts(w, v);
  sum_masks(w, v);
}

// ---------------------------------------------------------------- the operations

void vulkan_back_delta_rule(struct walk *w, const struct delta_rule *op) {
  const struct delta_args *a = &op->a;
  if (vulkan_back_chunks(w, op)) return;
  if (walk_is_fresh(w, 2)) w->functions->clear(w, walk_gradient(w, op->qkv));
  struct rule_call v = {.r = a->r ? a->r : 1,
                        .erases = true,
                        .nonneg = a->nonneg,
                        .o = op->o,
                        .qkv = op->qkv,
                        .beta = op->beta,
                        .mask = op->mask,
                        .state = op->state,
                        .sequences = op->sequences};
  if (a->gated) v.g = op->g;
  v.args = (struct rule_back_args){.H = a->H,
                                   .Hv = a->Hv,
                                   .Dk = a->Dk,
                                   .Dv = a->Dv,
                                   .n = a->n,
                                   .share = delta_share(a),
                                   .gated = a->gated,
                                   .fixed_mask = a->fixed_mask,
                                   .k_at = a->H * a->Dk,
                                   .v_at = a->H * a->Dk * (1 + a->n),
                                   .scale = a->scale};
  rule_back(w, &v);
}

// y = ... + D x
static void skip_back(struct walk *w, const struct mamba2 *op) {
  const struct tensor x = op->xBC, dy = walk_gradient(w, op->y), dx = walk_gradient(w, op->xBC);
  const uint32_t lanes = vulkan_plan(w->c)->block_lanes, cols = op->D.cols;
  const struct tensor parts = walk_tensor(w, x.rows, cols, cols);
  if (!parts.buffer) return;
  const struct skip_back_args args = {.T = x.rows,
                                      .cols = cols,
                                      .share = op->a.D_per_element ? 1 : op->a.P,
                                      .x_stride = x.stride,
                                      .dy_stride = dy.stride,
                                      .dx_stride = dx.stride};
  const struct binding bindings[SKIP_BACK_BINDINGS] = {[SKIP_BACK_X] = vulkan_bind(x, x),
                                                       [SKIP_BACK_D] = vulkan_bind(op->D, x),
                                                       [SKIP_BACK_DY] = vulkan_bind(dy, x),
                                                       [SKIP_BACK_DX] = vulkan_bind(dx, x),
                                                       [SKIP_BACK_PARTS] = vulkan_bind(parts, x)};
  back_dispatch(w, BACKWARD_skip_back, &lanes, bindings, &args, back_grid(cols, lanes, x.rows, 1),
                4ull * x.rows * dy.cols);
  back_sum_rows(w, walk_gradient(w, op->D), parts, x.rows, cols, 0);
}

void vulkan_back_mamba2(struct walk *w, const struct mamba2 *op) {
  const struct mamba2_args *a = &op->a;
  struct rule_call v = {
      .r = 1, .o = op->y, .qkv = op->xBC, .beta = op->dt, .g = op->g, .state = op->state, .sequences = op->sequences};
  v.args = (struct rule_back_args){.H = a->groups,
                                   .Hv = a->heads,
                                   .Dk = a->N,
                                   .Dv = a->P,
                                   .n = 1,
                                   .share = a->heads / a->groups,
                                   .gated = true,
                                   .q_at = a->heads * a->P + a->groups * a->N,
                                   .k_at = a->heads * a->P,
                                   .scale = 1};
  rule_back(w, &v);
  skip_back(w, op);
}
