// vulkan_narrow: products of few rows on cooperative matrices, joined with the operation after them.
#include "matmul_narrow.h"
#include "vulkan_backend.h"

bool vulkan_narrow_takes(const struct recorder *c, struct tensor w, uint32_t rows) {
  struct plan_narrow m;
  return vulkan_takes_f16(c, w) && plan_matmul_narrow(vulkan_products(c), rows, w.rows, w.cols, &m);
}

// Layout of a norm's h between the product that adds to the stream and the product that needs the norm.
struct ahead {
  struct tensor rows, sums, rms; // (T, D) f16, (T, MATMUL_NARROW_LEFT(parts)), (1, T)
};

struct conv_step_args vulkan_conv_step(struct binding *bindings, struct tensor x, const struct linear_conv *conv) {
  const struct conv *v = conv->conv;
  bindings[CONV_STEP_Y] = vulkan_bind(v->y, x);
  bindings[CONV_STEP_WEIGHT] = vulkan_bind(v->weight, x);
  bindings[CONV_STEP_BIAS] = vulkan_bind(v->bias, x);
  bindings[CONV_STEP_HISTORY] = vulkan_bind(v->a.W > 1 ? v->history : v->y, v->y);
  bindings[CONV_STEP_SEQUENCES] = vulkan_bind(v->sequences, x);
  return (struct conv_step_args){.from = conv->from,
                                 .C = v->a.C,
                                 .silu_from = v->a.silu_from,
                                 .has_bias = v->bias.buffer != NULL,
                                 .y_stride = v->y.stride,
                                 .weight_stride = v->weight.stride,
                                 .history_stride = v->history.stride,
                                 .B = v->sequences.rows};
}

void vulkan_no_conv_step(struct binding *bindings, struct binding y) {
  y.bytes = y.touched = y.bytes < 16 ? y.bytes : 16;
  y.overwritten = true;
  for (int i = 0; i < CONV_STEP_BINDINGS; i++) bindings[i] = y;
}

// False: h is too small.
static bool ahead_of(const struct linear_input *norm, uint32_t parts, struct ahead *a) {
  const struct tensor h = norm->h;
  const uint64_t room = tensor_bytes(&h);
  uint64_t used = 0;
  a->rows = tensor_as(h, DTYPE_F16);
  used += round_up((uint64_t)h.rows * a->rows.stride * 2, TENSOR_ALIGN);
  const uint32_t left = MATMUL_NARROW_LEFT(parts);
  a->rms = (struct tensor){.rows = 1, .cols = h.rows, .stride = h.rows, .buffer = h.buffer, .offset = h.offset + used};
  used += round_up(tensor_bytes(&a->rms), TENSOR_ALIGN);
  a->sums =
      (struct tensor){.rows = h.rows, .cols = left, .stride = left, .buffer = h.buffer, .offset = h.offset + used};
  used += tensor_bytes(&a->sums);
  return used <= room && a->rows.stride % 8 == 0;
}

struct tensor vulkan_norm_rms(const struct recorder *c, const struct linear_input *norm) {
  struct plan_narrow m;
  struct ahead a;
  if (!norm->ahead || !vulkan_has_matrices(c) || !ahead_of(norm, 1, &a) ||
      !plan_matmul_narrow(vulkan_products(c), norm->x.rows, norm->x.cols, norm->x.cols, &m))
    return (struct tensor){0};
  return a.rms;
}

static enum kernel_id kernel_of(const struct narrow_product *n) {
  const enum kernel_family family = n->p.glu  ? FAMILY_matmul_narrow_gated
                                    : n->next ? FAMILY_matmul_narrow_next
                                    : n->conv ? FAMILY_matmul_narrow_conv
                                              : FAMILY_matmul_narrow;
  return kernel_variant(family, n->p.w.dtype);
}

bool vulkan_matmul_narrow(struct recorder *c, const struct narrow_product *n) {
  const struct plan *plan = vulkan_plan(c);
  const struct matrix_product *p = &n->p;
  const struct tensor w = p->w;
  const struct conv *conv = n->conv ? n->conv->conv : NULL;
  const uint32_t squares = n->norm ? n->norm->ahead->parts : 0;
  struct tensor x = p->x;
  struct ahead a = {0};
  struct plan_narrow m;
  if (n->norm) {
    if (!ahead_of(n->norm, squares, &a)) return false;
    x = tensor_rows(a.rows, 0, n->norm->x.rows);
  }
  if (!vulkan_takes_f16(c, w) || x.dtype != DTYPE_F16 || x.stride % 8 ||
      !plan_matmul_narrow(vulkan_products(c), x.rows, w.rows, x.cols, &m))
    return false;
  if (conv && vulkan_device(c->backend)->caps.max_storage_buffers < MATMUL_NARROW_CONV_BINDINGS) return false;
  const uint32_t spec[MATMUL_NARROW_CONV_SPECS] = {
      [MATMUL_NARROW_SPEC_LANES] = m.lanes,
      [MATMUL_NARROW_SPEC_PARTS] = m.parts,
      [MATMUL_NARROW_SPEC_TILES_T] = m.tiles_t,
      [MATMUL_NARROW_SPEC_TILES_N] = m.tiles_n,
      [MATMUL_NARROW_SPEC_STEP] = m.step,
      [MATMUL_NARROW_SPEC_M] = plan->matrix_m,
      [MATMUL_NARROW_SPEC_N] = plan->matrix_n,
      [MATMUL_NARROW_SPEC_K] = plan->matrix_k,
      [MATMUL_NARROW_SPEC_SQUARES] = squares,
      [MATMUL_NARROW_SPEC_LENGTH] = x.cols,
      [MATMUL_NARROW_SPEC_PASSES] = m.passes,
      [MATMUL_NARROW_SPEC_FORMAT] = w.dtype,
      [MATMUL_NARROW_SPEC_ACTIVATION] = p->activation,
      [MATMUL_NARROW_CONV_SPEC_W] = conv ? conv->a.W : 0,
  };
  const uint32_t N = p->glu ? w.rows / 2 : w.rows, wide = m.tiles_n * plan->matrix_n / (p->glu ? 2 : 1);
  const uint32_t groups = divide_up(N, wide);
  if (n->next && !ahead_of(n->next, groups, &a)) return false;
  struct binding bindings[MATMUL_NARROW_CONV_BINDINGS] = {
      [MATMUL_NARROW_Y] = vulkan_bind_output(p->y, p->add), [MATMUL_NARROW_X] = vulkan_bind(x, x),
      [MATMUL_NARROW_WEIGHTS] = vulkan_bind_weights(w),     [MATMUL_NARROW_BIAS] = vulkan_bind(p->bias, x),
      [MATMUL_NARROW_SUMS] = vulkan_bind(a.sums, x),        [MATMUL_NARROW_RMS] = vulkan_bind(a.rms, p->y)};
  struct matmul_narrow_args args = {.T = x.rows,
                                    .N = N,
                                    .y_stride = p->y.stride,
                                    .x_stride = x.stride,
                                    .w_stride = w.stride,
                                    .first = p->first,
                                    .add = p->add,
                                    .has_bias = p->bias.buffer != NULL,
                                    .eps = n->norm ? n->norm->eps : 0,
                                    .h_stride = a.rows.stride};
  if (n->next) {
    n->next->ahead->parts = groups;
    bindings[MATMUL_NARROW_NEXT_WEIGHT] = vulkan_bind(n->next->weight, x);
    bindings[MATMUL_NARROW_NEXT_H] = vulkan_bind(tensor_rows(a.rows, 0, x.rows), x);
  }
  if (conv) args.conv = vulkan_conv_step(bindings + MATMUL_NARROW_BINDINGS, x, n->conv);
  vulkan_dispatch(c, kernel_of(n), spec, bindings, &args, (struct grid){(uint64_t)groups * m.passes, 1, 1},
                  2ull * x.rows * w.rows * x.cols);
  return true;
}
