// backward_vulkan: dispatches, sums and products of the backward pass on Vulkan.
#include "backward_vulkan.h"

#include "sum_rows.h"
#include "transpose.h"

void back_dispatch(struct walk *w, enum backward_kernel id, const uint32_t *spec, const struct binding *bindings,
                   const void *push, struct grid grid, uint64_t operations) {
  const struct dispatched d = {&backward_kernels[id], spec, backward_kernel_specs[id], bindings, push};
  if (!w->status) vulkan_dispatch_shader(w->c, &d, grid, operations);
}

struct binding back_bind(struct tensor d, bool add) {
  struct binding b = vulkan_bind(d, d);
  b.overwritten = !add;
  return b;
}

struct grid back_grid(uint32_t cols, uint32_t lanes, uint32_t rows, uint32_t z) {
  return (struct grid){divide_up(cols, lanes), rows < MAX_GROUPS ? rows : MAX_GROUPS, z};
}

// ---------------------------------------------------------------- sums

static void sum_rows(struct walk *w, struct tensor to, struct tensor from, const struct sum_rows_args *args) {
  const uint32_t lanes = vulkan_plan(w->c)->lanes;
  const struct binding bindings[SUM_ROWS_BINDINGS] = {
      [SUM_ROWS_TO] = vulkan_bind(to, to), [SUM_ROWS_FROM] = vulkan_bind(from, to)};
  back_dispatch(w, BACKWARD_sum_rows, &lanes, bindings, args,
                (struct grid){divide_up(to.cols, SUM_ROWS_COLUMNS), divide_up(args->rows, args->each), 1},
                3ull * args->rows * to.cols);
}

// Many rows are added in parts, so that many workgroups run.
void back_sum_rows(struct walk *w, struct tensor to, struct tensor from, uint64_t rows, uint32_t stride,
                   uint32_t first) {
  enum { EACH = 256 };
  if (w->status || !to.buffer) return;
  struct sum_rows_args args = {
      .rows = (uint32_t)rows, .each = (uint32_t)rows, .cols = to.cols, .stride = stride, .first = first, .add = 1};
  if (rows > 2 * EACH) {
    const struct tensor parts = walk_tensor(w, divide_up(args.rows, EACH), to.cols, to.cols);
    if (!parts.buffer) return;
    args.each = EACH;
    args.add = 0;
    sum_rows(w, parts, from, &args);
    from = parts;
    args = (struct sum_rows_args){
        .rows = parts.rows, .each = parts.rows, .cols = to.cols, .stride = parts.stride, .add = 1};
  }
  sum_rows(w, to, from, &args);
}

// ---------------------------------------------------------------- products

struct tensor back_transposed(struct walk *w, struct tensor from) {
  enum { TILE = 32, LANES = 256 };
  const struct tensor to = walk_tensor(w, from.cols, from.rows, round_up(from.rows, 8));
  if (!to.buffer) return to;
  const bool half = from.dtype == DTYPE_F16;
  const uint32_t spec[TRANSPOSE_SPECS] = {[TRANSPOSE_SPEC_TILE] = TILE, [TRANSPOSE_SPEC_LANES] = LANES};
  const struct transpose_args args = {
      .rows = from.rows, .cols = from.cols, .to_stride = to.stride, .from_stride = from.stride};
  const struct binding bindings[TRANSPOSE_BINDINGS] = {[TRANSPOSE_TO] = vulkan_bind_weights(to),
                                                       [TRANSPOSE_FROM] =
                                                           half ? vulkan_bind_weights(from) : vulkan_bind(from, to)};
  back_dispatch(w, half ? BACKWARD_transpose_halves : BACKWARD_transpose, spec, bindings, &args,
                (struct grid){divide_up(from.cols, TILE), divide_up(to.stride, TILE), 1},
                (uint64_t)to.rows * to.stride);
  return to;
}

static bool is_same(struct tensor a, struct tensor b) {
  return a.buffer == b.buffer && a.offset == b.offset && a.rows == b.rows && a.cols == b.cols;
}

struct tensor back_rounded(struct walk *w, struct tensor from) {
  if (from.dtype == DTYPE_F16) return from;
  if (w->unrounded.buffer && is_same(w->unrounded, from)) return w->rounded;
  const struct tensor to = walk_half(w, from.rows, from.cols);
  if (w->status) return to;
  vulkan_round(w->c, to, from);
  w->unrounded = from;
  return w->rounded = to;
}

void back_product(struct walk *w, struct tensor y, struct tensor x, struct tensor m, bool adds) {
  const struct tensor none = {0};
  if (!w->status && m.dtype == DTYPE_F16 && x.dtype == DTYPE_F32 && vulkan_input_dtype(w->c, m, x.rows) == DTYPE_F16)
    x = back_rounded(w, x);
  struct linear_input in = {.x = x};
  if (x.dtype == DTYPE_F16 && x.stride == m.stride) in.x.cols = m.cols = x.stride; // zeros, which keep loads aligned
  if (!w->status) vulkan_linear(w->c, y, &in, &(struct linear){y, x, m, none}, adds);
}

// Whether the product y (T, N) = x m, or with turn_x x^T m, of m (K, N) is computed from f16, without transposed
// copies. One with few rows is not: kernels that read f32 are faster.
static bool is_turned(const struct walk *w, uint32_t T, struct tensor m, bool turn_x) {
  const struct tensor weights = {
      .dtype = DTYPE_F16, .rows = m.cols, .cols = m.rows, .stride = (uint32_t)round_up(m.rows, 8), .wide = m.wide};
  const uint64_t bytes = 2ull * m.rows * round_up(m.cols, 8);
  return vulkan_input_dtype(w->c, weights, T) == DTYPE_F16 && bytes <= vulkan_plan(w->c)->binding_bytes &&
         vulkan_turns(w->c, T, m.cols, m.rows, turn_x);
}

bool back_rounds(const struct walk *w, const struct linear *p) {
  return is_turned(w, p->y.rows, p->w, false) && is_turned(w, p->y.cols, p->x, true);
}

static bool turned_product(struct walk *w, struct tensor y, struct tensor x, struct tensor m, bool turn_x, bool adds) {
  if (w->status || !is_turned(w, y.rows, m, turn_x)) return false;
  struct matrix_product p = {.y = y, .turn_x = turn_x, .add = adds};
  p.turned = &backward_kernels[turn_x ? BACKWARD_matmul_matrix_outer : BACKWARD_matmul_matrix_times];
  if (turn_x) p.x = back_rounded(w, x);
  p.w = back_rounded(w, m);
  if (!turn_x) p.x = back_rounded(w, x); // last, since dW reads it again, and one copy is kept
  if (!w->status) vulkan_matmul_turned(w->c, &p);
  return true;
}

bool back_turned_times(struct walk *w, struct tensor y, struct tensor x, struct tensor m, bool adds) {
  return turned_product(w, y, x, m, false, adds);
}

bool back_turned_outer(struct walk *w, struct tensor y, struct tensor a, struct tensor b) {
  return turned_product(w, y, a, b, true, true);
}
