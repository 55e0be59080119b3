// vulkan_back_chunks: the backward pass of the delta rule by chunks on cooperative matrices (rule_matrix.h).
#include "backward_vulkan.h"

#include "rule_matrix.h"

struct chunks_call {
  const struct delta_rule *op;
  struct plan_back_rule p;
  struct rule_matrix_args args;
  struct tensor rows, states, gates, prepared, whole, blocks; // rule_matrix.h
  uint32_t steps;                                             // of all blocks
};

// Bytes of f32 memory that hold f16 numbers, as a tensor of those.
static struct tensor halves_of(struct tensor t) {
  t.dtype = DTYPE_F16;
  t.cols *= 2;
  t.stride *= 2;
  return t;
}

static bool make_rooms(struct walk *w, struct chunks_call *v) {
  const struct plan_back_rule *p = &v->p;
  struct rule_matrix_args *a = &v->args;
  const uint64_t most = (uint64_t)v->op->qkv.rows * v->op->a.n / p->block + v->op->sequences.rows,
                 heads = (uint64_t)a->Hv * most, numbers = heads * p->block;
  const uint64_t row = RULE_MATRIX_ROW((uint64_t)a->H, a->Hv, p->Dk, p->Dv) / 2,
                 record = 4 * DELTA_MATRIX_RECORD(16, 1);
  if (most * p->block > UINT32_MAX || 2 * round_up(numbers, 64) > UINT32_MAX) {
    w->status = fail(DELTAIC_OUT_OF_MEMORY, "a batch of %u tokens is too large for %u heads", v->op->qkv.rows, a->Hv);
    return false;
  }
  a->blocks = (uint32_t)most;
  v->steps = (uint32_t)most * p->block;
  a->g_at = (uint32_t)round_up(numbers, 64);
  a->scales_at = 2 * a->g_at;
  v->rows = halves_of(walk_tensor(w, v->steps, row, row));
  v->states = walk_tensor(w, heads, (uint64_t)p->Dk * p->Dv, (uint64_t)p->Dk * p->Dv);
  v->gates = walk_tensor(w, 1, a->scales_at + heads, a->scales_at + heads);
  v->prepared = walk_tensor(w, heads * (p->block / RULE_MATRIX_CHUNK), record, record);
  v->whole = walk_tensor(w, 1, 4, 4);
  v->blocks = walk_tensor(w, most, 4, 4);
  return !w->status;
}

// ---------------------------------------------------------------- dispatches

static struct binding bound(const struct chunks_call *v, struct tensor t) { return vulkan_bind(t, v->op->qkv); }

static void gates(struct walk *w, const struct chunks_call *v) {
  const struct delta_rule *op = v->op;
  struct rule_matrix_args args = v->args;
  args.beta_stride = op->beta.stride;
  args.g_stride = op->g.stride;
  const uint32_t spec[RULE_MATRIX_GATES_SPECS] = {[RULE_MATRIX_SPEC_LANES] = vulkan_plan(w->c)->block_lanes,
                                                  [RULE_MATRIX_SPEC_BLOCK] = v->p.block,
                                                  [RULE_MATRIX_SPEC_N] = op->a.n};
  const struct binding bindings[RULE_MATRIX_GATES_BINDINGS] = {
      [RULE_MATRIX_GATES] = bound(v, v->gates),       [RULE_MATRIX_SEQUENCES] = bound(v, op->sequences),
      [RULE_MATRIX_GATES_WHOLE] = bound(v, v->whole), [RULE_MATRIX_GATES_BLOCKS] = bound(v, v->blocks),
      [RULE_MATRIX_GATES_BETA] = bound(v, op->beta),  [RULE_MATRIX_GATES_G] = bound(v, op->a.gated ? op->g : op->qkv)};
  back_dispatch(w, BACKWARD_rule_matrix_gates, spec, bindings, &args, (struct grid){args.blocks, 1, 1},
                4ull * v->steps * args.Hv);
}

static void pack(struct walk *w, const struct chunks_call *v) {
  const struct delta_rule *op = v->op;
  const struct tensor d_o = walk_gradient(w, op->o), dstate = walk_gradient(w, op->state);
  struct rule_matrix_args args = v->args;
  args.do_stride = d_o.stride;
  args.state_stride = dstate.stride;
  const uint32_t sizes = args.Dk | args.Dv | args.qkv_stride | d_o.stride;
  const uint32_t spec[RULE_MATRIX_PACK_SPECS] = {[RULE_MATRIX_SPEC_LANES] = vulkan_plan(w->c)->block_lanes,
                                                 [RULE_MATRIX_SPEC_BLOCK] = v->p.block,
                                                 [RULE_MATRIX_SPEC_DK] = v->p.Dk,
                                                 [RULE_MATRIX_SPEC_DV] = v->p.Dv,
                                                 [RULE_MATRIX_SPEC_N] = op->a.n,
                                                 [RULE_MATRIX_SPEC_UNIT] =
                                                     sizes % 4 == 0 && (op->qkv.offset | d_o.offset) % 16 == 0 ? 4 : 1};
  const struct binding bindings[RULE_MATRIX_PACK_BINDINGS] = {
      [RULE_MATRIX_ROWS] = bound(v, v->rows),   [RULE_MATRIX_BLOCKS] = bound(v, v->blocks),
      [RULE_MATRIX_GATES] = bound(v, v->gates), [RULE_MATRIX_PACK_QKV] = bound(v, op->qkv),
      [RULE_MATRIX_PACK_DO] = bound(v, d_o),    [RULE_MATRIX_PACK_DSTATE] = bound(v, dstate)};
  back_dispatch(w, BACKWARD_rule_matrix_pack, spec, bindings, &args, (struct grid){args.H + args.Hv, args.blocks, 1},
                (uint64_t)v->steps * v->rows.cols);
}

// The steps as one sequence of n = 1, whose padding has beta 0.
static void prepare(struct walk *w, const struct chunks_call *v) {
  const struct tensor all = {.rows = v->steps, .cols = v->args.Hv, .stride = v->args.Hv, .buffer = v->gates.buffer};
  struct delta_rule rule = {.qkv = v->rows, .beta = all, .g = all, .sequences = v->whole, .a = v->op->a};
  rule.a.n = 1;
  rule.a.Dk = v->p.Dk;
  rule.a.Dv = v->p.Dv;
  rule.g.offset = v->args.g_at * sizeof(float);
  if (!w->status) vulkan_delta_prepare(w->c, &rule, &v->p.prepare, bound(v, v->prepared), v->steps / RULE_MATRIX_CHUNK);
}

static void scan_spec(struct walk *w, const struct chunks_call *v, uint32_t subgroups, uint32_t *spec) {
  const struct plan *plan = vulkan_plan(w->c);
  spec[RULE_MATRIX_SPEC_LANES] = subgroups * plan->matrix_lanes;
  spec[RULE_MATRIX_SPEC_BLOCK] = v->p.block;
  spec[RULE_MATRIX_SPEC_DK] = v->p.Dk;
  spec[RULE_MATRIX_SPEC_DV] = v->p.Dv;
  spec[RULE_MATRIX_SPEC_N] = v->op->a.n;
  spec[RULE_MATRIX_SPEC_SUBGROUP] = plan->matrix_lanes;
  spec[RULE_MATRIX_SPEC_TILE] = plan->matrix_m;
  spec[RULE_MATRIX_SPEC_LOCKSTEP] = v->p.lockstep;
  spec[RULE_MATRIX_SPEC_WIDTH] = v->p.width; // of scans; grads has another constant there
}

// Workgroups for value columns, heads and sequences.
static struct grid scan_grid(const struct chunks_call *v, uint32_t subgroups) {
  return (struct grid){divide_up(v->p.Dv, v->p.width * subgroups), v->args.Hv, v->op->sequences.rows};
}

static void states(struct walk *w, const struct chunks_call *v) {
  const struct tensor before = walk_before(w, v->op->state);
  struct rule_matrix_args args = v->args;
  uint32_t spec[RULE_MATRIX_STATES_SPECS];
  args.has_before = before.buffer != NULL;
  args.state_stride = v->op->state.stride;
  scan_spec(w, v, v->p.states, spec);
  const struct binding bindings[RULE_MATRIX_STATES_BINDINGS] = {[RULE_MATRIX_ROWS] = bound(v, v->rows),
                                                                [RULE_MATRIX_SEQUENCES] = bound(v, v->op->sequences),
                                                                [RULE_MATRIX_STATES] = bound(v, v->states),
                                                                [RULE_MATRIX_PREPARED] = bound(v, v->prepared),
                                                                [RULE_MATRIX_STATES_BEFORE] = bound(v, before)};
  back_dispatch(w, v->p.conversions ? BACKWARD_rule_matrix_states_registers : BACKWARD_rule_matrix_states, spec,
                bindings, &args, scan_grid(v, v->p.states),
                2ull * v->steps * args.Hv * v->p.Dv * (2 * v->p.Dk + RULE_MATRIX_CHUNK / 2));
}

static void reverse(struct walk *w, const struct chunks_call *v) {
  const struct tensor dstate = walk_gradient(w, v->op->state);
  struct rule_matrix_args args = v->args;
  uint32_t spec[RULE_MATRIX_REVERSE_SPECS];
  args.state_stride = dstate.stride;
  scan_spec(w, v, v->p.reverse, spec);
  const struct binding bindings[RULE_MATRIX_REVERSE_BINDINGS] = {
      [RULE_MATRIX_ROWS] = bound(v, v->rows),           [RULE_MATRIX_SEQUENCES] = bound(v, v->op->sequences),
      [RULE_MATRIX_REVERSE_GATES] = bound(v, v->gates), [RULE_MATRIX_STATES] = bound(v, v->states),
      [RULE_MATRIX_PREPARED] = bound(v, v->prepared),   [RULE_MATRIX_REVERSE_DSTATE] = bound(v, dstate)};
  back_dispatch(w, v->p.conversions ? BACKWARD_rule_matrix_reverse_registers : BACKWARD_rule_matrix_reverse, spec,
                bindings, &args, scan_grid(v, v->p.reverse),
                2ull * v->steps * args.Hv * v->p.Dv * (3 * v->p.Dk + RULE_MATRIX_CHUNK));
}

static void grads(struct walk *w, const struct chunks_call *v) {
  const struct delta_rule *op = v->op;
  const struct tensor dqkv = walk_gradient(w, op->qkv), dbeta = walk_gradient(w, op->beta),
                      dg = op->a.gated ? walk_gradient(w, op->g) : (struct tensor){0};
  struct rule_matrix_args args = v->args;
  uint32_t spec[RULE_MATRIX_GRADS_SPECS];
  args.qkv_stride = dqkv.stride;
  args.beta_stride = dbeta.stride;
  args.g_stride = dg.stride;
  args.add = !walk_is_fresh(w, 2);
  scan_spec(w, v, v->p.grads, spec);
  spec[RULE_MATRIX_SPEC_GATED] = op->a.gated;
  spec[RULE_MATRIX_SPEC_WHOLE] =
      op->a.n == 1 && args.Dk == v->p.Dk && args.Dv == v->p.Dv && dqkv.stride % 4 == 0 && dqkv.offset % 16 == 0;
  const struct plan_back_pool pool = plan_back_pool(vulkan_plan(w->c), &v->p);
  spec[RULE_MATRIX_SPEC_SPLIT] = v->p.split;
  spec[RULE_MATRIX_SPEC_OWN] = v->p.own;
  spec[RULE_MATRIX_SPEC_SCORES] = pool.scores;
  spec[RULE_MATRIX_SPEC_POOL] = pool.all;
  const struct binding bindings[RULE_MATRIX_GRADS_BINDINGS] = {[RULE_MATRIX_ROWS] = bound(v, v->rows),
                                                               [RULE_MATRIX_BLOCKS] = bound(v, v->blocks),
                                                               [RULE_MATRIX_GRADS_GATES] = bound(v, v->gates),
                                                               [RULE_MATRIX_STATES] = bound(v, v->states),
                                                               [RULE_MATRIX_GRADS_DQKV] = back_bind(dqkv, args.add),
                                                               [RULE_MATRIX_GRADS_DBETA] = bound(v, dbeta),
                                                               [RULE_MATRIX_GRADS_DG] = vulkan_bind(dg, dbeta)};
  const uint64_t products = 3ull * v->p.Dk * v->p.Dv + v->p.block * (v->p.Dv + 2ull * v->p.Dk);
  back_dispatch(w, BACKWARD_rule_matrix_grads, spec, bindings, &args, (struct grid){args.H, args.blocks, 1},
                2 * v->steps * args.Hv * products);
}

static void small(struct walk *w, const struct chunks_call *v) {
  const struct delta_rule *op = v->op;
  const struct tensor dbeta = walk_gradient(w, op->beta);
  struct rule_matrix_args args = v->args;
  args.beta_stride = dbeta.stride;
  const uint32_t spec[RULE_MATRIX_SMALL_SPECS] = {[RULE_MATRIX_SPEC_LANES] = vulkan_plan(w->c)->lanes,
                                                  [RULE_MATRIX_SPEC_BLOCK] = v->p.block,
                                                  [RULE_MATRIX_SPEC_DK] = v->p.Dk,
                                                  [RULE_MATRIX_SPEC_DV] = v->p.Dv,
                                                  [RULE_MATRIX_SPEC_N] = op->a.n};
  const struct binding bindings[RULE_MATRIX_SMALL_BINDINGS] = {
      [RULE_MATRIX_ROWS] = bound(v, v->rows),         [RULE_MATRIX_BLOCKS] = bound(v, v->blocks),
      [RULE_MATRIX_SMALL_GATES] = bound(v, v->gates), [RULE_MATRIX_STATES] = bound(v, v->states),
      [RULE_MATRIX_SMALL_QKV] = bound(v, op->qkv),    [RULE_MATRIX_SMALL_DBETA] = bound(v, dbeta)};
  back_dispatch(w, BACKWARD_rule_matrix_small, spec, bindings, &args, (struct grid){args.Hv, args.blocks, 1},
                (uint64_t)v->steps * args.Hv);
}

// ---------------------------------------------------------------- the operation

void vulkan_back_chunks_planned(struct walk *w, const struct delta_rule *op, const struct plan_back_rule *p) {
  struct chunks_call v = {.op = op, .p = *p};
  v.args = (struct rule_matrix_args){.B = op->sequences.rows,
                                     .H = op->a.H,
                                     .Hv = op->a.Hv,
                                     .Dk = op->a.Dk,
                                     .Dv = op->a.Dv,
                                     .share = delta_share(&op->a),
                                     .gated = op->a.gated,
                                     .qkv_stride = op->qkv.stride,
                                     .scale = op->a.scale};
  if (!make_rooms(w, &v)) return;
  gates(w, &v);
  pack(w, &v);
  prepare(w, &v);
  states(w, &v);
  reverse(w, &v);
  grads(w, &v);
  small(w, &v);
}

bool vulkan_back_chunks(struct walk *w, const struct delta_rule *op) {
  struct plan_back_rule p;
  const bool built = backward_kernels[BACKWARD_rule_matrix_grads].units > 1,
             converts = backward_kernels[BACKWARD_rule_matrix_states_registers].units > 1;
  if (!w->list->matrices || op->a.r > 1 || !built) return false;
  if (!plan_back_rule(vulkan_plan(w->c), op->a.Dk, op->a.Dv, op->sequences.rows * op->a.Hv,
                      w->list->matrices == MATRICES_BEST && converts, &p))
    return false;
  vulkan_back_chunks_planned(w, op, &p);
  return true;
}
