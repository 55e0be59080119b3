// vulkan_experts: mixtures of experts: the choice of each token's experts, the products of the chosen rows, their sum.
#include "vulkan_backend.h"

#include "experts.h"
#include "group.h"
#include "mix.h"
#include "route.h"

void vulkan_route(struct recorder *c, const struct route *r) {
  const uint32_t T = r->logits.rows, k = r->ids.cols;
  const uint32_t spec[ROUTE_SPECS] = {[ROUTE_SPEC_LANES] = 32, [ROUTE_SPEC_EXPERTS] = r->experts};
  const struct binding bindings[ROUTE_BINDINGS] = {[ROUTE_IDS] = vulkan_bind(r->ids, r->ids),
                                                   [ROUTE_WEIGHTS] = vulkan_bind(r->weights, r->ids),
                                                   [ROUTE_LOGITS] = vulkan_bind(r->logits, r->ids)};
  const struct route_args args = {.T = T,
                                  .k = k,
                                  .ids_stride = r->ids.stride,
                                  .weights_stride = r->weights.stride,
                                  .logits_stride = r->logits.stride,
                                  .normalized = r->normalized};
  vulkan_dispatch(c, KERNEL_route, spec, bindings, &args, (struct grid){min32(T, MAX_GROUPS), 1, 1},
                  (uint64_t)T * r->experts * (k + 8ull));
}

void vulkan_group(struct recorder *c, const struct group *g) {
  const uint32_t spec[GROUP_SPECS] = {
      [GROUP_SPEC_LANES] = vulkan_plan(c)->lanes, [GROUP_SPEC_EXPERTS] = g->starts.cols - 1};
  const struct binding bindings[GROUP_BINDINGS] = {[GROUP_ORDER] = vulkan_bind(g->order, g->ids),
                                                   [GROUP_STARTS] = vulkan_bind(g->starts, g->ids),
                                                   [GROUP_IDS] = vulkan_bind(g->ids, g->ids)};
  const struct group_args args = {.T = g->ids.rows, .k = g->ids.cols, .ids_stride = g->ids.stride};
  vulkan_dispatch(c, KERNEL_group, spec, bindings, &args, (struct grid){1, 1, 1}, 2ull * g->ids.rows * g->ids.cols);
}

// The most experts whose weights, of `rows` rows each, one descriptor can bind; each range must be aligned.
static uint32_t experts_bound(const struct recorder *c, struct tensor w, uint32_t rows) {
  const uint64_t bytes = rows * dtype_bytes(w.dtype, w.stride);
  uint64_t least = 1;
  while (least * bytes % TENSOR_ALIGN) least *= 2;
  const uint64_t most = vulkan_plan(c)->binding_bytes / bytes / least * least, all = w.rows / rows;
  return (uint32_t)(most < least ? least : most < all ? most : all);
}

void vulkan_experts(struct recorder *c, const struct experts *e, const struct glu *glu) {
  enum { OUTPUTS = 4 }; // weights that an invocation loads at once
  const struct tensor y = glu ? glu->y : e->y, x = e->x, w = e->w, ids = e->ids;
  const uint32_t rows = e->y.cols, all = w.rows / rows, bound = experts_bound(c, w, rows);
  const uint32_t outputs = glu ? OUTPUTS / 2 : OUTPUTS;
  uint32_t lanes = 32;
  while (lanes < vulkan_plan(c)->lanes && lanes * 16 < x.cols) lanes *= 2;
  const uint32_t spec[EXPERTS_SPECS] = {[EXPERTS_SPEC_LANES] = lanes,
                                        [EXPERTS_SPEC_ROWS] = outputs,
                                        [EXPERTS_SPEC_ALIGNED] = x.cols % 4 == 0 && x.stride % 4 == 0,
                                        [EXPERTS_SPEC_GATED] = glu != NULL,
                                        [EXPERTS_SPEC_FORMAT] = w.dtype};
  struct experts_args args = {.R = y.rows,
                              .N = y.cols,
                              .K = x.cols,
                              .k = ids.cols,
                              .share = y.rows / x.rows,
                              .y_stride = y.stride,
                              .x_stride = x.stride,
                              .w_stride = w.stride,
                              .ids_stride = ids.stride,
                              .activation = glu ? glu->activation : 0};
  for (args.first = 0; args.first < all; args.first += bound) {
    args.count = min32(bound, all - args.first);
    const struct tensor part = tensor_rows(w, args.first * rows, args.count * rows);
    struct binding weights = vulkan_bind_weights(part);
    weights.touched = dtype_bytes(w.dtype, (uint64_t)min32(args.R, args.count) * rows * w.stride);
    const struct binding bindings[EXPERTS_BINDINGS] = {[EXPERTS_Y] = vulkan_bind(y, y),
                                                       [EXPERTS_X] = vulkan_bind(x, x),
                                                       [EXPERTS_WEIGHTS] = weights,
                                                       [EXPERTS_IDS] = vulkan_bind(ids, ids)};
    vulkan_dispatch(c, kernel_variant(FAMILY_experts, w.dtype), spec, bindings, &args,
                    (struct grid){divide_up(y.cols, outputs), min32(y.rows, MAX_GROUPS), divide_up(y.rows, MAX_GROUPS)},
                    2ull * y.rows * rows * x.cols);
  }
}

void vulkan_mix(struct recorder *c, const struct mix *m) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const struct tensor y = m->y;
  const struct binding bindings[MIX_BINDINGS] = {[MIX_Y] = vulkan_bind(y, y),
                                                 [MIX_X] = vulkan_bind(m->x, m->x),
                                                 [MIX_WEIGHTS] = vulkan_bind(m->weights, m->x),
                                                 [MIX_SHARED] = vulkan_bind(m->shared, m->x),
                                                 [MIX_LOGITS] = vulkan_bind(m->logits, m->x)};
  const struct mix_args args = {.D = y.cols,
                                .k = m->weights.cols,
                                .y_stride = y.stride,
                                .x_stride = m->x.stride,
                                .weights_stride = m->weights.stride,
                                .shared_stride = m->shared.stride,
                                .logits_stride = m->logits.stride,
                                .gate_col = m->gate_col,
                                .has_shared = m->shared.buffer != NULL};
  vulkan_dispatch(c, KERNEL_mix, &lanes, bindings, &args, (struct grid){divide_up(y.cols, lanes), y.rows, 1},
                  2ull * m->x.rows * m->x.cols);
}
