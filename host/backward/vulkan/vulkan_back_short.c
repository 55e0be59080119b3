// vulkan_back_short: the loss, embeddings, norms and gated units.
#include "backward_vulkan.h"

#include "embed_back.h"
#include "gated_norm_back.h"
#include "glu_back.h"
#include "loss_back.h"

static_assert(BACK_OF_GATED == NORM_OF_GATED && BACK_FIRST == NORM_FIRST && BACK_ABSENT == NORM_ABSENT,
              "shaders and host number the norm's places alike");

static bool are_fours(uint32_t a, uint32_t b, uint32_t c) { return (a | b | c) % 4 == 0; }

// A row is read once if the registers of a workgroup hold it, so long rows get as many invocations as the device
// allows.
void vulkan_back_loss(struct walk *w, const struct loss_rows *r) {
  enum { MOST_HELD = 8, MOST_LANES = 1024 };
  const struct plan *plan = vulkan_plan(w->c);
  const bool aligned = are_fours(r->z.cols, r->z.stride, r->taught.stride);
  const uint32_t units = r->z.cols / (aligned ? 4 : 1), most = plan->software ? plan->lanes : plan->most_lanes;
  uint32_t lanes = plan->lanes;
  while (lanes * 2 <= min32(most, MOST_LANES) && lanes * MOST_HELD < units) lanes *= 2;
  const uint32_t spec[LOSS_BACK_SPECS] = {[LOSS_BACK_SPEC_LANES] = lanes,
                                          [LOSS_BACK_SPEC_ALIGNED] = aligned,
                                          [LOSS_BACK_SPEC_HELD] = min32(divide_up(units, lanes), MOST_HELD),
                                          [LOSS_BACK_SPEC_TEACHES] = r->taught.buffer != NULL};
  const struct loss_back_args args = {.V = r->z.cols,
                                      .z_stride = r->z.stride,
                                      .taught_stride = r->taught.stride,
                                      .first = r->first,
                                      .tau = (float)r->tau,
                                      .factor = (float)r->factor,
                                      .kd_factor = (float)r->kd_factor};
  const struct binding bindings[LOSS_BACK_BINDINGS] = {[LOSS_BACK_Z] = vulkan_bind(r->z, r->z),
                                                       [LOSS_BACK_TAUGHT] = vulkan_bind(r->taught, r->targets),
                                                       [LOSS_BACK_TARGETS] = vulkan_bind(r->targets, r->z),
                                                       [LOSS_BACK_LOSSES] = vulkan_bind(r->losses, r->z)};
  back_dispatch(w, BACKWARD_loss_back, spec, bindings, &args, (struct grid){r->z.rows, 1, 1},
                20ull * r->z.rows * r->z.cols);
}

// A table that exceeds a binding is added to in parts. Workgroups share its rows, and each reads all tokens.
void vulkan_back_embed(struct walk *w, const struct embed *op) {
  const struct tensor dx = walk_gradient(w, op->x), dtable = walk_gradient(w, op->table);
  if (!dtable.buffer) return;
  enum { SHARES = 128 };
  const uint32_t lanes = vulkan_plan(w->c)->block_lanes;
  const uint64_t row = (uint64_t)dtable.stride * sizeof(float);
  const uint64_t most = vulkan_plan(w->c)->binding_bytes / row / TENSOR_ALIGN * TENSOR_ALIGN;
  struct embed_back_args args = {.T = dx.rows, .D = dx.cols, .dtable_stride = dtable.stride, .dx_stride = dx.stride};
  for (; args.first < dtable.rows; args.first += args.rows) {
    const uint32_t left = dtable.rows - args.first;
    args.rows = most && most < left ? (uint32_t)most : left;
    args.each = divide_up(args.rows, SHARES);
    struct tensor part = dtable;
    part.offset += args.first * row;
    part.rows = args.rows;
    const struct binding bindings[EMBED_BACK_BINDINGS] = {[EMBED_BACK_DTABLE] = vulkan_bind(part, part),
                                                          [EMBED_BACK_DX] = vulkan_bind(dx, dx),
                                                          [EMBED_BACK_TOKENS] = vulkan_bind(op->tokens, dx)};
    back_dispatch(w, BACKWARD_embed_back, &lanes, bindings, &args,
                  (struct grid){divide_up(dx.cols, lanes), divide_up(args.rows, args.each), 1},
                  (uint64_t)dx.rows * dx.cols);
  }
}

// Whether both, whose halves are gate and x, is a product's result whose gradient that product would round to f16.
static bool is_rounded(struct walk *w, const struct glu *op, struct tensor both) {
  struct linear p;
  return walk_is_fresh(w, 1) && op->x.buffer == op->gate.buffer &&
         op->x.offset == op->gate.offset + op->gate.cols * sizeof(float) && both.stride == both.cols &&
         both.cols % 8 == 0 && walk_product(w, both, &p) && back_rounds(w, &p);
}

// x may lie beside gate in one tensor, and is then bound from gate's first column on (vulkan_glu()).
void vulkan_back_glu(struct walk *w, const struct glu *op) {
  const uint32_t lanes = vulkan_plan(w->c)->block_lanes;
  const struct tensor dy = walk_gradient(w, op->y), gate = op->gate;
  struct tensor both = gate, x = op->x;
  both.cols *= 2;
  struct tensor dboth = walk_gradient(w, both);
  dboth.dtype = DTYPE_F16;
  const uint32_t beside = (uint32_t)((x.offset - gate.offset) / sizeof(float));
  const bool aligned = are_fours(dy.cols, beside, dy.stride) && are_fours(gate.stride, x.stride, 0);
  const bool half = aligned && is_rounded(w, op, both) && walk_place(w, both, dboth);
  const struct tensor dgate = walk_gradient(w, gate);
  struct tensor dx = half ? dgate : walk_gradient(w, x);
  const uint32_t from = half || x.offset % TENSOR_ALIGN ? beside : 0;
  if (!half) dx.offset -= from * sizeof(float);
  x.offset -= from * sizeof(float);
  x.cols = dx.cols += from;
  const uint32_t spec[GLU_BACK_SPECS] = {
      [GLU_BACK_SPEC_LANES] = lanes, [GLU_BACK_SPEC_ALIGNED] = aligned, [GLU_BACK_SPEC_ACTIVATION] = op->activation};
  const struct glu_back_args args = {.T = dy.rows,
                                     .F = dy.cols,
                                     .dy_stride = dy.stride,
                                     .gate_stride = gate.stride,
                                     .x_stride = x.stride,
                                     .x_from = from,
                                     .add = !walk_is_fresh(w, 1)};
  const struct binding bindings[GLU_BACK_BINDINGS] = {[GLU_BACK_GATE] = vulkan_bind(gate, dy),
                                                      [GLU_BACK_X] = vulkan_bind(x, dy),
                                                      [GLU_BACK_DY] = vulkan_bind(dy, dy),
                                                      [GLU_BACK_DGATE] = back_bind(dgate, args.add),
                                                      [GLU_BACK_DX] = back_bind(dx, args.add)};
  back_dispatch(w, half ? BACKWARD_glu_back_halves : BACKWARD_glu_back, spec, bindings, &args,
                back_grid(aligned ? dy.cols / 4 : dy.cols, lanes, dy.rows, 1), 30ull * dy.rows * dy.cols);
}

// A subgroup takes a group that its registers hold, else a workgroup, of few invocations that hold several units each:
// all workgroups of a long text then fit on a device at once. Returns the teams of a workgroup.
static uint32_t choose_norm_teams(const struct plan *plan, uint32_t n, uint32_t groups, uint32_t *spec) {
  enum { MOST_HELD = 4 };
  const uint32_t units = spec[GATED_NORM_BACK_SPEC_ALIGNED] ? n / 4 : n;
  const uint32_t width = plan->subgroup_width ? plan->subgroup_width : 32;
  const bool subgroups = units <= MOST_HELD * width;
  const uint32_t wanted = subgroups ? groups * width : divide_up(units, MOST_HELD);
  uint32_t lanes = plan->lanes;
  while (lanes > width && lanes / 2 >= wanted) lanes /= 2;
  spec[GATED_NORM_BACK_SPEC_LANES] = lanes;
  spec[GATED_NORM_BACK_SPEC_SUBGROUPS] = subgroups;
  spec[GATED_NORM_BACK_SPEC_HELD] = min32(divide_up(units, subgroups ? width : lanes), MOST_HELD);
  return subgroups ? lanes / width : 1;
}

void vulkan_back_gated_norm(struct walk *w, const struct gated_norm *op) {
  const struct tensor x = op->x, gate = op->gate, dy = walk_gradient(w, op->y), dx = walk_gradient(w, op->x);
  const struct tensor dgate = walk_gradient(w, op->gate), dweight = walk_gradient(w, op->weight);
  const uint32_t width = op->groups * op->group_cols, all = op->groups + (width < x.cols); // with the other columns
  const struct tensor parts = walk_tensor(w, divide_up(x.rows, GATED_NORM_BACK_ROWS), width, width);
  if (!parts.buffer) return;
  uint32_t spec[GATED_NORM_BACK_SPECS] = {[GATED_NORM_BACK_SPEC_ALIGNED] =
                                              are_fours(op->group_cols, op->from, x.stride) &&
                                              are_fours(dy.stride, dx.stride, gate.stride | dgate.stride),
                                          [GATED_NORM_BACK_SPEC_PLACE] = op->place,
                                          [GATED_NORM_BACK_SPEC_GATED] = gate.buffer != NULL};
  const uint32_t teams = choose_norm_teams(vulkan_plan(w->c), op->group_cols, all, spec);
  const struct gated_norm_back_args args = {.T = x.rows,
                                            .cols = x.cols,
                                            .groups = op->groups,
                                            .n = op->group_cols,
                                            .from = op->from,
                                            .weight_step = op->weight.cols == op->group_cols ? 0 : op->group_cols,
                                            .x_stride = x.stride,
                                            .gate_stride = gate.stride,
                                            .dy_stride = dy.stride,
                                            .dx_stride = dx.stride,
                                            .dgate_stride = dgate.stride,
                                            .eps = op->eps,
                                            .add = !walk_is_fresh(w, 1),
                                            .add_gate = !walk_is_fresh(w, 2)};
  const struct binding bindings[GATED_NORM_BACK_BINDINGS] = {
      [GATED_NORM_BACK_X] = vulkan_bind(x, x),
      [GATED_NORM_BACK_GATE] = vulkan_bind(gate, x),
      [GATED_NORM_BACK_WEIGHT] = vulkan_bind(op->weight, x),
      [GATED_NORM_BACK_DY] = vulkan_bind(dy, x),
      [GATED_NORM_BACK_DX] = back_bind(dx, args.add),
      [GATED_NORM_BACK_DGATE] = gate.buffer ? back_bind(dgate, args.add_gate) : vulkan_bind(dx, dx),
      [GATED_NORM_BACK_PARTS] = vulkan_bind(parts, x)};
  back_dispatch(w, BACKWARD_gated_norm_back, spec, bindings, &args, (struct grid){parts.rows, divide_up(all, teams), 1},
                40ull * x.rows * width);
  // One weight for all groups: a row for each group.
  if (dweight.buffer && op->place != NORM_ABSENT)
    back_sum_rows(w, dweight, parts, (uint64_t)parts.rows * width / dweight.cols, dweight.cols, 0);
}

void vulkan_back_norm(struct walk *w, const struct norm *op) {
  assert(!op->last.buffer);
  const struct gated_norm norm = {.y = op->y,
                                  .x = op->x,
                                  .weight = op->weight,
                                  .groups = 1,
                                  .group_cols = op->x.cols,
                                  .place = NORM_FIRST,
                                  .eps = op->eps};
  vulkan_back_gated_norm(w, &norm);
}
