// ops_vulkan_matrix: products on cooperative matrices.
#include "matmul_matrix.h"
#include "ops_vulkan.h"

bool vulkan_has_matrices(const struct recorder *c) {
  return c->matrices && vulkan_plan(c)->matrix_m && kernel_built(KERNEL_matmul_matrix_x32_f16);
}

bool vulkan_takes_f16(const struct recorder *c, struct tensor w) {
  return w.dtype != DTYPE_F32 && !w.wide && vulkan_has_matrices(c);
}

// A product of many rows with w; gated, y is half as wide and the kernel's output.
struct matrix_product {
  struct tensor y, x, w, bias;
  uint32_t first;
  bool add, gated;
  enum activation activation;
};

static bool matmul_matrix(struct recorder *c, const struct matrix_product *p) {
  const struct plan *plan = vulkan_plan(c);
  const struct tensor x = p->x;
  struct plan_matmul m;
  if (!plan_matmul_matrix(plan, x.rows, p->w.rows, x.cols, c->parts.buffer, &m) ||
      (p->gated && m.tile_n / m.across_n / plan->matrix_n % 2))
    return false;
  const uint32_t outputs = p->gated ? p->w.rows / 2 : p->w.rows;
  const uint32_t tickets = (uint32_t)(plan_matmul_tickets_bytes(plan) / sizeof(float));
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
      [MATMUL_MATRIX_SPEC_ALIGNED] = x.cols % 8 || x.stride % 8 ? 0
                                     : x.cols % m.tile_k        ? 1
                                                                : 2,
      [MATMUL_MATRIX_SPEC_SPLIT] = m.parts > 1,
  };
  struct tensor arrived = {0}, sums = {0};
  if (m.parts > 1) {
    arrived = tensor_cols(c->parts, 0, tickets);
    sums = tensor_cols(c->parts, tickets, c->parts.cols - tickets);
  }
  const struct binding in = vulkan_bind(x, x);
  struct binding bindings[MATMUL_MATRIX_BINDINGS] = {
      [MATMUL_MATRIX_Y] = vulkan_bind_sums(p->y, p->add),  [MATMUL_MATRIX_X] = in,
      [MATMUL_MATRIX_WEIGHTS] = vulkan_bind_weights(p->w), [MATMUL_MATRIX_BIAS] = vulkan_bind(p->bias, x),
      [MATMUL_MATRIX_PARTS] = vulkan_bind(sums, p->y),     [MATMUL_MATRIX_TICKETS] = vulkan_bind(arrived, p->y)};
  const uint64_t shared = (uint64_t)m.groups - m.whole; // workgroups; without any there is next to nothing to count
  bindings[MATMUL_MATRIX_PARTS].touched = sizeof(float) * (shared ? shared * m.tile_t * m.tile_n : 1);
  bindings[MATMUL_MATRIX_TICKETS].touched = sizeof(float) * (shared ? shared / m.parts : 1);
  const struct matmul_matrix_args args = {.T = x.rows,
                                          .N = outputs,
                                          .K = x.cols,
                                          .y_stride = p->y.stride,
                                          .x_stride = x.stride,
                                          .w_stride = p->w.stride,
                                          .first = p->first,
                                          .add = p->add,
                                          .has_bias = p->bias.buffer != NULL,
                                          .direct = p->y.stride % 8 == 0 && p->first % 8 == 0,
                                          .whole = m.whole,
                                          .parts = m.parts};
  enum kernel_id id = p->gated               ? KERNEL_matmul_matrix_gated_f16
                      : x.dtype == DTYPE_F16 ? KERNEL_matmul_matrix_x16_f16
                                             : KERNEL_matmul_matrix_x32_f16;
  vulkan_dispatch(c, id + (p->w.dtype - DTYPE_F16), spec, bindings, &args, m.groups, 1, 1,
                  2ull * x.rows * p->w.rows * x.cols);
  return true;
}

bool vulkan_matmul_matrix(struct recorder *c, struct tensor y, struct tensor x, struct tensor w, struct tensor bias,
                          uint32_t first, bool add) {
  if (!vulkan_takes_f16(c, w)) return false;
  return vulkan_matmul_narrow(
             c, &(struct narrow_product){.y = y, .x = x, .w = w, .bias = bias, .first = first, .add = add}) ||
         matmul_matrix(c, &(struct matrix_product){.y = y, .x = x, .w = w, .bias = bias, .first = first, .add = add});
}

bool vulkan_gated_matrix(struct recorder *c, struct tensor y, struct tensor x, struct tensor w,
                         enum activation activation) {
  if (!vulkan_takes_f16(c, w) || x.dtype != DTYPE_F16 || y.dtype != DTYPE_F16) return false;
  return vulkan_matmul_narrow(
             c, &(struct narrow_product){.y = y, .x = x, .w = w, .gated = true, .activation = activation}) ||
         matmul_matrix(c, &(struct matrix_product){.y = y, .x = x, .w = w, .gated = true, .activation = activation});
}
