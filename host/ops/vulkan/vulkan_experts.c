// vulkan_experts: mixtures of experts: the choice of each token's experts, the products of the chosen rows, their sum.
#include "vulkan_backend.h"

#include "experts.h"
#include "group.h"
#include "matmul.h"
#include "matmul_matrix.h"
#include "matvec_dot.h"
#include "mix.h"
#include "route.h"

void vulkan_route(struct recorder *c, const struct route *r) {
  const uint32_t T = r->logits.rows, k = r->ids.cols;
  uint32_t lanes = 32;
  while (lanes < r->experts && 2 * lanes <= vulkan_plan(c)->lanes) lanes *= 2;
  // One token waits longer for code that is unrolled than for its loads.
  const uint32_t spec[ROUTE_SPECS] = {
      [ROUTE_SPEC_LANES] = lanes, [ROUTE_SPEC_EXPERTS] = r->experts, [ROUTE_SPEC_BATCH] = T > 1 ? 8 : 1};
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
                  (uint64_t)T * r->experts * (r->experts + 8ull));
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

static uint32_t experts_of(const struct experts *e) { return e->w.rows / e->y.cols; }

bool vulkan_experts_sorted(const struct recorder *c, const struct experts *e) {
  (void)c;
  return tensor_present(e->order) && plan_experts_sorted(e->y.rows, experts_of(e));
}

static bool on_matrices(const struct recorder *c, const struct experts *e, struct plan_matmul *m) {
  return vulkan_experts_sorted(c, e) && vulkan_takes_f16(c, e->w) &&
         plan_matmul_experts(vulkan_products(c), e->y.rows, experts_of(e), e->y.cols, m);
}

enum dtype vulkan_experts_dtype(const struct recorder *c, const struct experts *e) {
  struct plan_matmul m;
  return on_matrices(c, e, &m) ? DTYPE_F16 : DTYPE_F32;
}

// A product of chosen rows, perhaps with the activation of its halves.
struct experts_call {
  const struct experts *e;
  const struct linear_input *in; // e->x, or what it is the norm of
  const struct glu *glu;         // NULL: none
  struct tensor y;
  uint32_t rows, first, count; // rows of weights of an expert; the experts of this dispatch
  struct tensor w;             // theirs
};

static struct experts_tile_args tiles_of(const struct experts_call *v) {
  return (struct experts_tile_args){
      .experts = experts_of(v->e), .share = v->e->y.rows / v->e->x.rows, .first = v->first, .count = v->count};
}

static struct binding bind_part(const struct experts_call *v) {
  struct binding weights = vulkan_bind_weights(v->w);
  weights.touched = dtype_bytes(v->w.dtype, (uint64_t)min32(v->y.rows, v->count) * v->rows * v->w.stride);
  return weights;
}

// Whether a single token's rows are computed with tiles, in integers.
static bool takes_dots(const struct recorder *c, const struct experts *e, struct tensor x, bool gated,
                       struct plan_dot *m) {
  return e->ids.rows == 1 && e->y.rows <= MAX_GROUPS && x.dtype == DTYPE_F32 && (x.rows == 1 || x.stride % 4 == 0) &&
         dtype_is_tiles(e->w.dtype) && vulkan_list(c)->matrices &&
         plan_dot(vulkan_products(c), x.cols, e->y.rows * e->y.cols, gated, vulkan_plan(c)->processors, m);
}

bool vulkan_experts_norm(const struct recorder *c, const struct experts *e) {
  struct plan_dot m;
  return takes_dots(c, e, e->x, false, &m) && takes_dots(c, e, e->x, true, &m);
}

// False: the kernel does not take the rows.
static bool by_dots(struct recorder *c, const struct experts_call *v) {
  const struct tensor y = v->y, x = v->in->x, ids = v->e->ids;
  struct plan_dot m;
  if (!takes_dots(c, v->e, x, v->glu, &m)) return false;
  uint32_t spec[MATVEC_DOT_SPECS] = {
      [MATVEC_DOT_SPEC_EXPERTS] = 1,
      [MATVEC_DOT_SPEC_NORM] = v->in->weight.buffer != NULL,
      [MATVEC_DOT_SPEC_ACTIVATION] = v->glu ? v->glu->activation : ACTIVATION_IDENTITY};
  vulkan_dot_spec(c, &m, x.cols, v->glu, v->w.dtype, spec);
  const struct matvec_args args = {.T = y.rows,
                                   .N = y.cols,
                                   .K = x.cols,
                                   .y_stride = y.stride,
                                   .x_stride = x.stride,
                                   .w_stride = v->w.stride,
                                   .eps = v->in->eps,
                                   .k = ids.cols,
                                   .share = y.rows / x.rows,
                                   .ids_stride = ids.stride,
                                   .first_expert = v->first,
                                   .experts = v->count};
  struct binding bindings[MATVEC_DOT_BINDINGS] = {[MATVEC_Y] = vulkan_bind_output(y, false),
                                                  [MATVEC_X] = vulkan_bind(x, x),
                                                  [MATVEC_WEIGHTS] = bind_part(v),
                                                  [MATVEC_DOT_IDS] = vulkan_bind(ids, ids),
                                                  [MATVEC_NORM] = vulkan_bind(v->in->weight, x)};
  vulkan_no_conv_step(bindings + MATVEC_BINDINGS, bindings[MATVEC_Y]);
  vulkan_dispatch(c, KERNEL_matvec_dot_blocks, spec, bindings, &args,
                  (struct grid){divide_up(y.cols, m.rows * m.teams), y.rows, 1}, 2ull * y.rows * v->rows * x.cols);
  return true;
}

// Each row by itself: only the chosen experts' weights are read, once for each choice.
static void by_rows(struct recorder *c, const struct experts_call *v) {
  enum { OUTPUTS = 4 }; // weights that an invocation loads at once
  const struct tensor y = v->y, x = v->e->x, ids = v->e->ids;
  const uint32_t outputs = v->glu ? OUTPUTS / 2 : OUTPUTS;
  uint32_t lanes = 32;
  while (lanes < vulkan_plan(c)->lanes && lanes * 16 < x.cols) lanes *= 2;
  const uint32_t spec[EXPERTS_SPECS] = {[EXPERTS_SPEC_LANES] = lanes,
                                        [EXPERTS_SPEC_ROWS] = outputs,
                                        [EXPERTS_SPEC_ALIGNED] = x.cols % 4 == 0 && x.stride % 4 == 0,
                                        [EXPERTS_SPEC_GATED] = v->glu != NULL,
                                        [EXPERTS_SPEC_FORMAT] = v->w.dtype};
  const struct experts_args args = {.R = y.rows,
                                    .N = y.cols,
                                    .K = x.cols,
                                    .k = ids.cols,
                                    .share = y.rows / x.rows,
                                    .y_stride = y.stride,
                                    .x_stride = x.stride,
                                    .w_stride = v->w.stride,
                                    .ids_stride = ids.stride,
                                    .first = v->first,
                                    .count = v->count,
                                    .activation = v->glu ? v->glu->activation : 0};
  const struct binding bindings[EXPERTS_BINDINGS] = {[EXPERTS_Y] = vulkan_bind(y, y),
                                                     [EXPERTS_X] = vulkan_bind(x, x),
                                                     [EXPERTS_WEIGHTS] = bind_part(v),
                                                     [EXPERTS_IDS] = vulkan_bind(ids, ids)};
  vulkan_dispatch(c, kernel_variant(FAMILY_experts, v->w.dtype), spec, bindings, &args,
                  (struct grid){divide_up(y.cols, outputs), min32(y.rows, MAX_GROUPS), divide_up(y.rows, MAX_GROUPS)},
                  2ull * y.rows * v->rows * x.cols);
}

// Tiles of the sorted rows in f32.
static void by_tiles(struct recorder *c, const struct experts_call *v) {
  const struct plan_tile *tile = &vulkan_products(c)->tile;
  const struct tensor y = v->y, x = v->e->x;
  uint32_t spec[MATMUL_SPECS];
  vulkan_matmul_spec(c, x, v->w, tile, spec);
  const struct matmul_args args = {.T = y.rows,
                                   .N = y.cols,
                                   .K = x.cols,
                                   .y_stride = y.stride,
                                   .x_stride = x.stride,
                                   .w_stride = v->w.stride,
                                   .tiles = tiles_of(v)};
  const struct binding bindings[MATMUL_EXPERTS_BINDINGS] = {[MATMUL_Y] = vulkan_bind(y, y),
                                                            [MATMUL_X] = vulkan_bind(x, x),
                                                            [MATMUL_WEIGHTS] = bind_part(v),
                                                            [MATMUL_BIAS] = vulkan_bind(x, x),
                                                            [MATMUL_ORDER] = vulkan_bind(v->e->order, x),
                                                            [MATMUL_STARTS] = vulkan_bind(v->e->starts, x)};
  vulkan_dispatch(
      c, kernel_variant(FAMILY_matmul_experts, v->w.dtype), spec, bindings, &args,
      (struct grid){divide_up(y.cols, tile->tile_n), plan_experts_tiles(y.rows, experts_of(v->e), tile->tile_t), 1},
      2ull * y.rows * y.cols * x.cols);
}

// The same on cooperative matrices.
static void by_matrices(struct recorder *c, const struct experts_call *v, const struct plan_matmul *m) {
  const struct plan *plan = vulkan_plan(c);
  const struct tensor y = v->y, x = v->e->x;
  const uint32_t spec[MATMUL_MATRIX_SPECS] = {[MATMUL_MATRIX_SPEC_LANES] = m->lanes,
                                              [MATMUL_MATRIX_SPEC_TILE_T] = m->tile_t,
                                              [MATMUL_MATRIX_SPEC_TILE_N] = m->tile_n,
                                              [MATMUL_MATRIX_SPEC_TILE_K] = m->tile_k,
                                              [MATMUL_MATRIX_SPEC_ACROSS_T] = m->across_t,
                                              [MATMUL_MATRIX_SPEC_ACROSS_N] = m->across_n,
                                              [MATMUL_MATRIX_SPEC_M] = plan->matrix_m,
                                              [MATMUL_MATRIX_SPEC_N] = plan->matrix_n,
                                              [MATMUL_MATRIX_SPEC_K] = plan->matrix_k,
                                              [MATMUL_MATRIX_SPEC_ACTIVATION] = v->glu ? v->glu->activation : 0,
                                              [MATMUL_MATRIX_SPEC_ALIGNED] = x.cols % 8 || x.stride % 8 ? 0
                                                                             : x.cols % m->tile_k       ? 1
                                                                                                        : 2,
                                              [MATMUL_MATRIX_SPEC_FORMAT] = v->w.dtype};
  const struct matmul_matrix_args args = {.T = y.rows,
                                          .N = y.cols,
                                          .K = x.cols,
                                          .y_stride = y.stride,
                                          .x_stride = x.stride,
                                          .w_stride = v->w.stride,
                                          .tiles = tiles_of(v)};
  const struct binding bindings[MATMUL_MATRIX_EXPERTS_BINDINGS] = {[MATMUL_MATRIX_Y] = vulkan_bind(y, y),
                                                                   [MATMUL_MATRIX_X] = vulkan_bind(x, x),
                                                                   [MATMUL_MATRIX_WEIGHTS] = bind_part(v),
                                                                   [MATMUL_MATRIX_BIAS] = vulkan_bind(x, x),
                                                                   [MATMUL_MATRIX_ORDER] = vulkan_bind(v->e->order, x),
                                                                   [MATMUL_MATRIX_STARTS] =
                                                                       vulkan_bind(v->e->starts, x)};
  const enum kernel_family family = v->glu                 ? FAMILY_matmul_matrix_experts_gated
                                    : x.dtype == DTYPE_F16 ? FAMILY_matmul_matrix_experts_x16
                                                           : FAMILY_matmul_matrix_experts_x32;
  const uint32_t wide = v->glu ? m->tile_n / 2 : m->tile_n; // outputs of a tile
  const uint32_t tiles = plan_experts_tiles(y.rows, experts_of(v->e), m->tile_t) * divide_up(y.cols, wide);
  vulkan_dispatch(c, kernel_variant(family, v->w.dtype), spec, bindings, &args,
                  (struct grid){min32(tiles, MAX_GROUPS), divide_up(tiles, MAX_GROUPS), 1},
                  2ull * y.rows * v->rows * x.cols);
}

void vulkan_experts(struct recorder *c, const struct experts *e, const struct linear_input *in, const struct glu *glu) {
  struct plan_matmul m;
  const bool matrices = on_matrices(c, e, &m), sorted = vulkan_experts_sorted(c, e);
  const bool gated = glu && (matrices ? glu->y.dtype == DTYPE_F16 && e->x.dtype == DTYPE_F32 : !sorted);
  struct experts_call v = {.e = e, .in = in, .glu = gated ? glu : NULL, .y = gated ? glu->y : e->y, .rows = e->y.cols};
  const uint32_t all = experts_of(e), bound = experts_bound(c, e->w, v.rows);
  for (v.first = 0; v.first < all; v.first += bound) {
    v.count = min32(bound, all - v.first);
    v.w = tensor_rows(e->w, v.first * v.rows, v.count * v.rows);
    if (matrices)
      by_matrices(c, &v, &m);
    else if (sorted)
      by_tiles(c, &v);
    else if (!by_dots(c, &v)) {
      assert(!in->weight.buffer);
      by_rows(c, &v);
    }
  }
  if (glu && !gated) vulkan_glu(c, glu);
}

void vulkan_mix(struct recorder *c, const struct mix *m, struct tensor y, bool add) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const struct binding bindings[MIX_BINDINGS] = {[MIX_Y] = vulkan_bind_output(y, add),
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
                                .has_shared = m->shared.buffer != NULL,
                                .add = add};
  vulkan_dispatch(c, KERNEL_mix, &lanes, bindings, &args, (struct grid){divide_up(y.cols, lanes), y.rows, 1},
                  2ull * m->x.rows * m->x.cols);
}
