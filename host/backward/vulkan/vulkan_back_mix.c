// vulkan_back_mix: the short convolution, and what precedes the recurrences: norms of keys and gates.
#include "backward_vulkan.h"

#include "conv_back.h"
#include "gates_back.h"
#include "keys_back.h"

// ---------------------------------------------------------------- convolution

struct conv_call {
  const struct conv *o;
  struct tensor d; // (T, C): gradients of the sums before the activation
  struct tensor before, dhistory;
  struct conv_back_args args;
};

// Invocations go through blocks of tokens. They hold much, so workgroups are small. strides: all that have to be
// multiples of 4, in one number.
static struct grid choose_conv(const struct walk *w, const struct conv_call *v, uint32_t strides, uint32_t *spec) {
  enum { MOST_LANES = 128 };
  const bool aligned = (v->d.cols | v->o->weight.stride | strides) % 4 == 0;
  spec[CONV_BACK_SPEC_LANES] = min32(vulkan_plan(w->c)->block_lanes, MOST_LANES);
  spec[CONV_BACK_SPEC_W] = v->o->a.W;
  spec[CONV_BACK_SPEC_ALIGNED] = aligned;
  return (struct grid){divide_up(aligned ? v->d.cols / 4 : v->d.cols, spec[CONV_BACK_SPEC_LANES]),
                       divide_up(vulkan_longest(w->c, v->d), CONV_BACK_TOKENS), v->o->sequences.rows};
}

static void conv_slopes(struct walk *w, const struct conv_call *v) {
  const struct conv *o = v->o;
  const struct tensor d = v->d, dy = walk_gradient(w, o->y);
  uint32_t spec[CONV_BACK_SLOPES_SPECS];
  const struct grid grid = choose_conv(w, v, o->x.stride | dy.stride | v->before.stride, spec);
  struct tensor dweight = walk_gradient(w, o->weight), parts = {0};
  const uint64_t all = (uint64_t)o->a.W * d.cols;
  if (dweight.buffer) parts = walk_tensor(w, grid.y * grid.z, all, all);
  if (w->status) return;
  struct conv_back_args args = v->args;
  args.has_history = v->before.buffer != NULL;
  args.has_parts = parts.buffer != NULL;
  args.dy_stride = dy.stride;
  args.history_stride = v->before.stride;
  const struct binding bindings[CONV_BACK_SLOPES_BINDINGS] = {[CONV_BACK_D] = vulkan_bind(d, d),
                                                              [CONV_BACK_SEQUENCES] = vulkan_bind(o->sequences, d),
                                                              [CONV_BACK_HISTORY] = vulkan_bind(v->before, o->x),
                                                              [CONV_BACK_X] = vulkan_bind(o->x, d),
                                                              [CONV_BACK_WEIGHT] = vulkan_bind(o->weight, d),
                                                              [CONV_BACK_BIAS] = vulkan_bind(o->bias, o->x),
                                                              [CONV_BACK_DY] = vulkan_bind(dy, d),
                                                              [CONV_BACK_PARTS] = vulkan_bind(parts, d)};
  back_dispatch(w, BACKWARD_conv_back_slopes, spec, bindings, &args, grid, (4ull * o->a.W + 10) * d.rows * d.cols);
  if (!parts.buffer) return;
  assert(dweight.stride == d.cols);
  dweight.cols = dweight.stride = (uint32_t)all; // one row after the other
  dweight.rows = 1;
  back_sum_rows(w, dweight, parts, parts.rows, parts.stride, 0);
}

static void conv_inputs(struct walk *w, const struct conv_call *v) {
  const struct conv *o = v->o;
  const uint32_t lanes = vulkan_plan(w->c)->block_lanes;
  const struct tensor d = v->d, dx = walk_gradient(w, o->x);
  uint32_t spec[CONV_BACK_INPUTS_SPECS];
  const struct grid grid = choose_conv(w, v, dx.stride | v->dhistory.stride, spec);
  struct conv_back_args args = v->args;
  args.has_history = v->dhistory.buffer != NULL;
  args.x_stride = dx.stride;
  args.history_stride = v->dhistory.stride;
  args.add = !walk_is_fresh(w, 2);
  const struct binding sequences = vulkan_bind(o->sequences, d), weight = vulkan_bind(o->weight, d);
  const struct binding history = vulkan_bind(v->dhistory, d);
  const struct binding inputs[CONV_BACK_INPUTS_BINDINGS] = {[CONV_BACK_D] = vulkan_bind(d, d),
                                                            [CONV_BACK_SEQUENCES] = sequences,
                                                            [CONV_BACK_HISTORY] = history,
                                                            [CONV_BACK_X] = back_bind(dx, args.add),
                                                            [CONV_BACK_WEIGHT] = weight};
  back_dispatch(w, BACKWARD_conv_back_inputs, spec, inputs, &args, grid, 2ull * o->a.W * d.rows * d.cols);
  if (!v->dhistory.buffer || o->a.W < 2) return;
  const struct binding bindings[CONV_BACK_HISTORY_BINDINGS] = {[CONV_BACK_D] = vulkan_bind(d, d),
                                                               [CONV_BACK_SEQUENCES] = sequences,
                                                               [CONV_BACK_HISTORY] = history,
                                                               [CONV_BACK_TAPS] = weight};
  back_dispatch(w, BACKWARD_conv_back_history, &lanes, bindings, &args,
                (struct grid){divide_up(d.cols, lanes), o->sequences.rows, 1},
                2ull * o->a.W * o->a.W * o->sequences.rows * d.cols);
}

void vulkan_back_conv(struct walk *w, const struct conv *op) {
  struct conv_call v = {.o = op, .d = walk_tensor(w, op->x.rows, op->a.C, op->a.C)};
  v.args = (struct conv_back_args){.W = op->a.W,
                                   .C = op->a.C,
                                   .silu_from = op->a.silu_from,
                                   .has_bias = op->bias.buffer != NULL,
                                   .x_stride = op->x.stride,
                                   .weight_stride = op->weight.stride};
  if (!v.d.buffer) return;
  if (op->history.buffer && op->a.W > 1) {
    v.before = walk_before(w, op->history);
    v.dhistory = walk_gradient(w, op->history);
  }
  conv_slopes(w, &v);
  conv_inputs(w, &v);
  back_sum_rows(w, walk_gradient(w, op->bias), v.d, v.d.rows, v.d.stride, 0);
}

// ---------------------------------------------------------------- norms of keys

static void keys_back(struct walk *w, const struct delta_inputs *op) {
  const struct tensor x = op->x, y = op->y, dy = walk_gradient(w, op->y), dx = walk_gradient(w, op->x);
  const uint32_t lanes = vulkan_plan(w->c)->lanes;
  const struct keys_back_args args = {.T = x.rows,
                                      .cols = x.cols,
                                      .heads = op->a.heads,
                                      .Dk = op->a.Dk,
                                      .activation = op->a.activation,
                                      .norm = op->a.norm,
                                      .x_stride = x.stride,
                                      .y_stride = y.stride,
                                      .dy_stride = dy.stride,
                                      .dx_stride = dx.stride,
                                      .add = !walk_is_fresh(w, 3)};
  const struct binding bindings[KEYS_BACK_BINDINGS] = {[KEYS_BACK_X] = vulkan_bind(x, x),
                                                       [KEYS_BACK_Y] = vulkan_bind(y, x),
                                                       [KEYS_BACK_DY] = vulkan_bind(dy, x),
                                                       [KEYS_BACK_DX] = back_bind(dx, args.add)};
  back_dispatch(w, BACKWARD_keys_back, &lanes, bindings, &args,
                (struct grid){divide_up(x.rows, KEYS_BACK_ROWS), divide_up(x.cols, op->a.Dk), 1},
                8ull * x.rows * x.cols);
}

// ---------------------------------------------------------------- gates

struct gates_call {
  bool mamba2;
  struct tensor raw, A_log, dt_bias, dbeta, dg;
  struct gates_back_args args; // counts and factors
};

static void gates_back(struct walk *w, const struct gates_call *v) {
  const struct tensor draw = walk_gradient(w, v->raw);
  const uint32_t lanes = vulkan_plan(w->c)->lanes, decays = v->args.decays, T = v->raw.rows;
  if (!draw.buffer || !(v->args.betas + decays)) return;
  const struct tensor parts = walk_tensor(w, T, 2 * (uint64_t)decays, 2 * (uint64_t)decays);
  if (!parts.buffer) return;
  struct gates_back_args args = v->args;
  args.T = T;
  args.raw_stride = v->raw.stride;
  args.draw_stride = draw.stride;
  args.dbeta_stride = v->dbeta.stride;
  args.dg_stride = v->dg.stride;
  const uint32_t spec[GATES_BACK_SPECS] = {[GATES_BACK_SPEC_LANES] = lanes, [GATES_BACK_SPEC_MAMBA2] = v->mamba2};
  const struct tensor raw = v->raw;
  const struct binding bindings[GATES_BACK_BINDINGS] = {[GATES_BACK_RAW] = vulkan_bind(raw, raw),
                                                        [GATES_BACK_A_LOG] = vulkan_bind(v->A_log, raw),
                                                        [GATES_BACK_DT_BIAS] = vulkan_bind(v->dt_bias, raw),
                                                        [GATES_BACK_DBETA] = vulkan_bind(v->dbeta, raw),
                                                        [GATES_BACK_DG] = vulkan_bind(v->dg, raw),
                                                        [GATES_BACK_DRAW] = vulkan_bind(draw, raw),
                                                        [GATES_BACK_PARTS] = vulkan_bind(decays ? parts : draw, draw)};
  back_dispatch(w, BACKWARD_gates_back, spec, bindings, &args, back_grid(args.betas + decays, lanes, T, 1),
                60ull * T * (args.betas + decays));
  if (!decays) return;
  back_sum_rows(w, walk_gradient(w, v->A_log), parts, T, 2 * decays, 0);
  back_sum_rows(w, walk_gradient(w, v->dt_bias), parts, T, 2 * decays, decays);
}

void vulkan_back_delta_inputs(struct walk *w, const struct delta_inputs *op) {
  const struct delta_input_args *a = &op->a;
  struct gates_call v = {.raw = op->ba, .args = {.beta_scale = a->beta_scale}};
  if (a->has_beta) {
    v.args.betas = a->betas;
    v.dbeta = walk_gradient(w, op->beta);
  }
  if (a->gated) {
    v.args.decays = a->decays;
    v.A_log = op->A_log;
    v.dt_bias = op->dt_bias;
    v.dg = walk_gradient(w, op->g);
  }
  keys_back(w, op);
  gates_back(w, &v);
}

void vulkan_back_mamba2_inputs(struct walk *w, const struct mamba2_inputs *op) {
  gates_back(w, &(struct gates_call){.mamba2 = true,
                                     .raw = op->raw,
                                     .A_log = op->A_log,
                                     .dt_bias = op->dt_bias,
                                     .dbeta = walk_gradient(w, op->dt),
                                     .dg = walk_gradient(w, op->g),
                                     .args = {.decays = op->dt.cols, .low = op->low, .high = op->high}});
}
