// vulkan_matrix: products of many rows on cooperative matrices.
#include "matmul_matrix.h"
#include "round.h"
#include "vulkan_backend.h"

static uint32_t alignment(const struct matrix_product *p, uint32_t K, uint32_t tile_k) {
  const bool whole = p->turned || (K % 8 == 0 && p->x.stride % 8 == 0);
  return !whole ? 0 : K % tile_k ? 1 : 2;
}

static bool matmul_matrix(struct recorder *c, const struct matrix_product *p) {
  const struct plan *plan = vulkan_plan(c);
  const struct tensor x = p->x, parts = vulkan_list(c)->parts;
  const uint32_t T = p->turn_x ? x.cols : x.rows, K = p->turn_x ? x.rows : x.cols;
  const uint32_t N = p->turned ? p->w.cols : p->w.rows;
  struct plan_matmul m;
  if (!plan_matmul_matrix(vulkan_products(c), T, N, K, parts.buffer, &m) ||
      (p->glu && m.tile_n / m.across_n / plan->matrix_n % 2))
    return false;
  const uint32_t tickets = (uint32_t)(plan_matmul_tickets_bytes(vulkan_products(c)) / sizeof(float));
  const uint32_t spec[MATMUL_MATRIX_SPECS] = {
      [MATMUL_MATRIX_SPEC_LANES] = m.lanes,
      [MATMUL_MATRIX_SPEC_TILE_T] = m.tile_t,
      [MATMUL_MATRIX_SPEC_TILE_N] = m.tile_n,
      [MATMUL_MATRIX_SPEC_TILE_K] = m.tile_k,
      [MATMUL_MATRIX_SPEC_ACROSS_T] = m.across_t,
      [MATMUL_MATRIX_SPEC_ACROSS_N] = m.across_n,
      [MATMUL_MATRIX_SPEC_M] = plan->matrix_m,
      [MATMUL_MATRIX_SPEC_N] = plan->matrix_n,
      [MATMUL_MATRIX_SPEC_K] = plan->matrix_k,
      [MATMUL_MATRIX_SPEC_ACTIVATION] = p->activation,
      [MATMUL_MATRIX_SPEC_ALIGNED] = alignment(p, K, m.tile_k),
      [MATMUL_MATRIX_SPEC_SPLIT] = m.parts > 1,
      [MATMUL_MATRIX_SPEC_FORMAT] = p->w.dtype,
  };
  struct tensor arrived = {0}, sums = {0};
  if (m.parts > 1) {
    arrived = tensor_cols(parts, 0, tickets);
    sums = tensor_cols(parts, tickets, parts.cols - tickets);
  }
  const struct binding in = p->turned ? vulkan_bind_weights(x) : vulkan_bind(x, x); // groups of 8, or elements
  struct binding bindings[MATMUL_MATRIX_BINDINGS] = {
      [MATMUL_MATRIX_Y] = vulkan_bind_output(p->y, p->add), [MATMUL_MATRIX_X] = in,
      [MATMUL_MATRIX_WEIGHTS] = vulkan_bind_weights(p->w),  [MATMUL_MATRIX_BIAS] = vulkan_bind(p->bias, x),
      [MATMUL_MATRIX_PARTS] = vulkan_bind(sums, p->y),      [MATMUL_MATRIX_TICKETS] = vulkan_bind(arrived, p->y)};
  const uint64_t shared = (uint64_t)m.groups - m.whole; // workgroups of split tiles; 0: the bindings are unused
  bindings[MATMUL_MATRIX_PARTS].touched = sizeof(float) * (shared ? shared * m.tile_t * m.tile_n : 1);
  bindings[MATMUL_MATRIX_TICKETS].touched = sizeof(float) * (shared ? shared / m.parts : 1);
  const struct matmul_matrix_args args = {.T = T,
                                          .N = p->glu ? N / 2 : N,
                                          .K = K,
                                          .y_stride = p->y.stride,
                                          .x_stride = x.stride,
                                          .w_stride = p->w.stride,
                                          .first = p->first,
                                          .add = p->add,
                                          .has_bias = p->bias.buffer != NULL,
                                          .direct = p->y.stride % 8 == 0 && p->first % 8 == 0,
                                          .whole = m.whole,
                                          .parts = m.parts};
  const enum kernel_family family = p->glu                 ? FAMILY_matmul_matrix_gated
                                    : x.dtype == DTYPE_F16 ? FAMILY_matmul_matrix_x16
                                                           : FAMILY_matmul_matrix_x32;
  const struct dispatched d = {p->turned ? p->turned : &kernels[kernel_variant(family, p->w.dtype)], spec,
                               MATMUL_MATRIX_SPECS, bindings, &args};
  vulkan_dispatch_shader(c, &d, (struct grid){m.groups, 1, 1}, 2ull * T * N * K);
  return true;
}

bool vulkan_matmul_matrix(struct recorder *c, const struct matrix_product *p) {
  if (!vulkan_takes_f16(c, p->w)) return false;
  return vulkan_matmul_narrow(c, &(struct narrow_product){.p = *p}) || matmul_matrix(c, p);
}

bool vulkan_turns(const struct recorder *c, uint32_t T, uint32_t N, uint32_t K, bool turn_x) {
  struct plan_matmul m;
  return vulkan_has_matrices(c) && plan_matmul_matrix(vulkan_products(c), T, N, K, vulkan_list(c)->parts.buffer, &m) &&
         plan_matmul_turns(vulkan_products(c), &m, turn_x);
}

void vulkan_matmul_turned(struct recorder *c, const struct matrix_product *p) {
  assert(p->x.dtype == DTYPE_F16 && p->w.dtype == DTYPE_F16 && p->x.stride % 8 == 0 && p->w.stride % 8 == 0);
  assert((p->turn_x ? p->x.rows : p->x.cols) == p->w.rows && p->y.cols == p->w.cols);
  matmul_matrix(c, p);
}

// Weights that exceed a binding are rounded in parts.
void vulkan_round(struct recorder *c, struct tensor to, struct tensor from) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const uint64_t row = (uint64_t)from.stride * sizeof(float);
  const uint64_t most = vulkan_plan(c)->binding_bytes / row / TENSOR_ALIGN * TENSOR_ALIGN;
  const uint32_t spec[ROUND_SPECS] = {
      [ROUND_SPEC_LANES] = lanes, [ROUND_SPEC_ALIGNED] = from.cols % 8 == 0 && from.stride % 8 == 0};
  for (uint32_t first = 0, rows; first < from.rows; first += rows) {
    rows = from.rows - first < most || !most ? from.rows - first : (uint32_t)most;
    struct tensor part = from, into = to;
    part.rows = into.rows = rows;
    part.offset += first * row;
    into.offset += (uint64_t)first * to.stride * 2;
    const struct round_args args = {
        .rows = rows, .cols = from.cols, .to_stride = to.stride, .from_stride = from.stride};
    const struct binding bindings[ROUND_BINDINGS] = {
        [ROUND_TO] = vulkan_bind_weights(into), [ROUND_FROM] = vulkan_bind(part, part)};
    vulkan_dispatch(c, KERNEL_round, spec, bindings, &args,
                    (struct grid){divide_up(to.stride / 8, lanes), min32(rows, MAX_GROUPS), 1},
                    (uint64_t)rows * to.stride);
  }
}
