// ops_vulkan_linear: products with weights on Vulkan. Few rows take one pass over the weights (matvec), with the norm
// before it and what follows it in the same kernel; many rows take tiles (many_rows), with kernels of their own around.
#include "ops_vulkan.h"

#include "activation.h"
#include "embed.h"
#include "matmul.h"
#include "matvec.h"
#include "swiglu.h"

static_assert(ACT_IDENTITY == ACTIVATION_IDENTITY && ACT_SILU == ACTIVATION_SILU && ACT_RELU == ACTIVATION_RELU &&
                  ACT_ELU1 == ACTIVATION_ELU1 && ACT_POWLU == ACTIVATION_POWLU,
              "shaders and host number the activations alike");

// The most rows of w that one descriptor may hold. 16 rows have a multiple of 256 bytes, where a range may begin.
static uint32_t rows_bound(const struct recorder *c, struct tensor w) {
  uint64_t rows = vulkan_plan(c)->binding_bytes / ((uint64_t)w.stride * dtype_bytes(w.dtype)) / 16 * 16;
  return rows < 16 ? 16 : rows < w.rows ? (uint32_t)rows : w.rows;
}

static struct tensor part_of(struct tensor w, uint32_t first, uint32_t rows) {
  return tensor_rows(w, first, w.rows - first < rows ? w.rows - first : rows);
}

void vulkan_embed(struct recorder *c, struct tensor x, struct tensor table, struct tensor tokens) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes, rows = rows_bound(c, table);
  struct embed_args args = {.D = x.cols, .x_stride = x.stride, .table_stride = table.stride};
  for (uint32_t first = 0; first < table.rows; first += rows) {
    struct tensor part = part_of(table, first, rows);
    args.first = first;
    args.rows = part.rows;
    struct binding weights = vulkan_bind_weights(part);
    if (x.rows < part.rows) weights.touched = (uint64_t)x.rows * x.cols * dtype_bytes(table.dtype);
    const struct binding bindings[EMBED_BINDINGS] = {
        [EMBED_X] = vulkan_bind(x, x), [EMBED_WEIGHTS] = weights, [EMBED_TOKENS] = vulkan_bind(tokens, x)};
    vulkan_dispatch(c, KERNEL_embed_f32 + table.dtype, &lanes, bindings, &args, divide_up(x.cols, 8 * lanes), x.rows, 1,
                    (uint64_t)x.rows * x.cols);
  }
}

struct product {
  struct tensor y, x, w, bias;
  uint32_t first; // output that row 0 of w makes
  bool add;
  uint32_t aligned;
  uint64_t operations;
};

// ---------------------------------------------------------------- few rows

// A product with all that one kernel does around it.
struct fused {
  struct linear_input in;
  struct tensor y, w, bias;
  bool add, gated;
  enum activation activation; // of gated
  struct tensor conv_y;
  const struct linear_conv *conv; // NULL: none
};

static uint32_t tokens_of(uint32_t rows) { return rows > 4 ? 8 : rows > 2 ? 4 : rows; }

// Up to 8 rows share every weight that is read. More are matvec's too where matrices do not take them: workgroups with
// the same weights and other rows are neighbours, so that the weights still come from memory once. f16: the rows are,
// or will be; only so do matrices take few.
static bool few(const struct recorder *c, struct tensor w, uint32_t rows, bool f16) {
  const struct plan *plan = vulkan_plan(c);
  if (!vulkan_takes_f16(c, w)) return rows < plan->matvec_below;
  return rows < plan->narrow_from || (rows <= 8 && !(f16 && vulkan_narrow_takes(c, w, rows)));
}

static bool few_of(const struct recorder *c, const struct linear_input *in, struct tensor w) {
  return few(c, w, in->x.rows, in->weight.buffer || in->x.dtype == DTYPE_F16);
}

struct conv_step_args vulkan_conv_step(struct binding *bindings, struct tensor y, struct tensor x,
                                       const struct linear_conv *conv) {
  bindings[CONV_STEP_Y] = vulkan_bind(y, x);
  bindings[CONV_STEP_WEIGHT] = vulkan_bind(conv->weight, x);
  bindings[CONV_STEP_BIAS] = vulkan_bind(conv->bias, x);
  bindings[CONV_STEP_HISTORY] = vulkan_bind(conv->a.W > 1 ? conv->history : y, y);
  bindings[CONV_STEP_SEQUENCES] = vulkan_bind(conv->sequences, x);
  return (struct conv_step_args){.from = conv->from,
                                 .C = conv->a.C,
                                 .silu_from = conv->a.silu_from,
                                 .has_bias = conv->bias.buffer != NULL,
                                 .y_stride = y.stride,
                                 .weight_stride = conv->weight.stride,
                                 .history_stride = conv->history.stride,
                                 .B = conv->sequences.rows};
}

static void few_rows_part(struct recorder *c, const struct fused *f, struct tensor w, uint32_t first) {
  const struct tensor x = f->in.x;
  const uint32_t tokens = tokens_of(x.rows), N = f->gated ? w.rows / 2 : w.rows;
  const bool norm = f->in.weight.buffer != NULL;
  const struct plan_matvec m = plan_matvec(vulkan_plan(c), x.cols, tokens, norm, f->gated);
  const struct linear_conv *conv = f->conv;
  const uint32_t spec[MATVEC_CONV_SPECS] = {
      [MATVEC_SPEC_LANES] = m.lanes * m.sets,
      [MATVEC_SPEC_ROWS] = m.rows,
      [MATVEC_SPEC_TOKENS] = tokens,
      [MATVEC_SPEC_UNROLL] = m.unroll,
      [MATVEC_SPEC_ALIGNED] = x.cols % 4 == 0 && x.stride % 4 == 0,
      [MATVEC_SPEC_NORM] = norm,
      [MATVEC_SPEC_GATED] = f->gated,
      [MATVEC_SPEC_SETS] = m.sets,
      [MATVEC_SPEC_LENGTH] = m.sets > 1 ? x.cols : 0,
      [MATVEC_CONV_SPEC_W] = conv ? conv->a.W : 0,
      [MATVEC_CONV_SPEC_LONE] = conv && x.rows == 1 && conv->sequences.rows == 1 && conv->history.rows == 1};
  const struct binding from = vulkan_bind(x, x), weight = vulkan_bind(f->in.weight, x);
  struct binding bindings[MATVEC_CONV_BINDINGS] = {[MATVEC_Y] = vulkan_bind_sums(f->y, f->add),
                                                   [MATVEC_X] = from,
                                                   [MATVEC_WEIGHTS] = vulkan_bind_weights(w),
                                                   [MATVEC_BIAS] = vulkan_bind(f->bias, x),
                                                   [MATVEC_NORM] = weight};
  struct matvec_args args = {.T = x.rows,
                             .N = N,
                             .K = x.cols,
                             .y_stride = f->y.stride,
                             .x_stride = x.stride,
                             .w_stride = w.stride,
                             .first = first,
                             .add = f->add,
                             .has_bias = f->bias.buffer != NULL,
                             .eps = f->in.eps,
                             .activation = f->activation};
  if (conv) args.conv = vulkan_conv_step(bindings + MATVEC_BINDINGS, f->conv_y, x, conv);
  uint32_t groups = divide_up(N, m.rows * m.sets) * divide_up(x.rows, tokens), y = divide_up(groups, MAX_GROUPS);
  enum kernel_id id = (conv ? KERNEL_matvec_conv_f32 : KERNEL_matvec_f32) + w.dtype;
  vulkan_dispatch(c, id, spec, bindings, &args, divide_up(groups, y ? y : 1), y, 1, 2ull * x.rows * w.rows * x.cols);
}

static void few_rows(struct recorder *c, const struct fused *f) {
  const uint32_t rows = rows_bound(c, f->w);
  assert(f->in.x.cols == f->w.cols && f->w.stride % 8 == 0 && (!f->gated || rows == f->w.rows));
  for (uint32_t first = 0; first < f->w.rows; first += rows) few_rows_part(c, f, part_of(f->w, first, rows), first);
}

// ---------------------------------------------------------------- many rows

// Any number of rows, in tiles through shared memory.
static void many_rows(struct recorder *c, const struct product *p) {
  const struct plan *plan = vulkan_plan(c);
  const uint32_t spec[MATMUL_SPECS] = {[MATMUL_SPEC_LANES] = plan_matmul_lanes(plan),
                                       [MATMUL_SPEC_TILE_T] = plan->matmul_tile_t,
                                       [MATMUL_SPEC_TILE_N] = plan->matmul_tile_n,
                                       [MATMUL_SPEC_TILE_K] = plan->matmul_tile_k,
                                       [MATMUL_SPEC_SUB_T] = plan->matmul_sub_t,
                                       [MATMUL_SPEC_SUB_N] = plan->matmul_sub_n,
                                       [MATMUL_SPEC_ALIGNED] = p->aligned,
                                       [MATMUL_SPEC_GROUPED] = !c->matrices};
  const struct binding x = vulkan_bind(p->x, p->x);
  const struct binding bindings[MATMUL_BINDINGS] = {[MATMUL_Y] = vulkan_bind_sums(p->y, p->add),
                                                    [MATMUL_X] = x,
                                                    [MATMUL_WEIGHTS] = vulkan_bind_weights(p->w),
                                                    [MATMUL_BIAS] = vulkan_bind(p->bias, p->x)};
  const struct matmul_args args = {.T = p->x.rows,
                                   .N = p->w.rows,
                                   .K = p->x.cols,
                                   .y_stride = p->y.stride,
                                   .x_stride = p->x.stride,
                                   .w_stride = p->w.stride,
                                   .first = p->first,
                                   .add = p->add,
                                   .has_bias = p->bias.buffer != NULL};
  vulkan_dispatch(c, KERNEL_matmul_f32 + p->w.dtype, spec, bindings, &args, divide_up(p->w.rows, plan->matmul_tile_n),
                  divide_up(p->x.rows, plan->matmul_tile_t), 1, p->operations);
}

static void tiles(struct recorder *c, struct tensor y, struct tensor x, struct tensor w, struct tensor bias, bool add) {
  assert(x.cols == w.cols && y.cols == w.rows && y.rows == x.rows && w.stride % 8 == 0);
  uint32_t rows = rows_bound(c, w);
  struct product p = {.y = y, .x = x, .bias = bias, .add = add, .aligned = x.cols % 4 == 0 && x.stride % 4 == 0};
  for (; p.first < w.rows; p.first += rows) {
    p.w = part_of(w, p.first, rows);
    p.operations = 2ull * x.rows * p.w.rows * x.cols;
    if (!vulkan_matmul_matrix(c, y, x, p.w, bias, p.first, add)) many_rows(c, &p);
  }
}

static struct tensor input_rows(struct recorder *c, const struct linear_input *in, struct tensor w) {
  if (!in->weight.buffer) return in->x;
  struct tensor h = tensor_as(tensor_rows(in->h, 0, in->x.rows), vulkan_takes_f16(c, w) ? DTYPE_F16 : DTYPE_F32);
  struct tensor rms = h.dtype == DTYPE_F16 ? vulkan_norm_rms(c, in) : (struct tensor){0};
  vulkan_norm_and_rms(c, h, rms, in->x, in->weight, in->eps);
  if (in->ahead) *in->ahead = (struct norm_ahead){.estimated = rms.buffer != NULL}; // h may lie over what was there
  return h;
}

// Whether the product before has left of the norm what matmul_narrow needs.
static bool is_ahead(const struct recorder *c, const struct linear_input *in, struct tensor w) {
  return in->weight.buffer && in->ahead && in->ahead->parts && rows_bound(c, w) == w.rows &&
         vulkan_narrow_takes(c, w, in->x.rows);
}

static void swiglu(struct recorder *c, struct tensor y, struct tensor gate_up, enum activation activation) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const struct binding bindings[SWIGLU_BINDINGS] = {
      [SWIGLU_Y] = vulkan_bind(y, y), [SWIGLU_GATE_UP] = vulkan_bind(gate_up, y)};
  const struct swiglu_args args = {
      .F = y.cols, .activation = activation, .y_stride = y.stride, .gate_up_stride = gate_up.stride};
  vulkan_dispatch(c, KERNEL_swiglu_f32 + y.dtype, &lanes, bindings, &args, divide_up(y.cols, lanes), y.rows, 1,
                  6ull * y.rows * y.cols);
}

// ---------------------------------------------------------------- ops

enum dtype vulkan_input_dtype(const struct recorder *c, struct tensor w, uint32_t T) {
  return !few(c, w, T, true) && vulkan_takes_f16(c, w) ? DTYPE_F16 : DTYPE_F32;
}

void vulkan_linear(struct recorder *c, struct tensor y, struct linear_input in, struct tensor w, struct tensor bias,
                   bool add) {
  if (few_of(c, &in, w))
    few_rows(c, &(struct fused){.in = in, .y = y, .w = w, .bias = bias, .add = add});
  else if (!is_ahead(c, &in, w) ||
           !vulkan_matmul_narrow(c, &(struct narrow_product){.y = y, .w = w, .bias = bias, .norm = &in, .add = add}))
    tiles(c, y, input_rows(c, &in, w), w, bias, add);
}

void vulkan_linear_residual(struct recorder *c, struct tensor x, struct linear_input in, struct tensor w,
                            struct tensor bias, const struct linear_input *next) {
  struct norm_ahead *ahead = next ? next->ahead : NULL;
  if (ahead) ahead->parts = 0;
  if (ahead && ahead->estimated && !in.weight.buffer && !few_of(c, &in, w) && rows_bound(c, w) == w.rows &&
      vulkan_matmul_narrow(
          c, &(struct narrow_product){.y = x, .x = in.x, .w = w, .bias = bias, .next = next, .add = true}))
    return;
  vulkan_linear(c, x, in, w, bias, true);
}

bool vulkan_linear_conv(struct recorder *c, struct tensor y, struct tensor p, struct linear_input in, struct tensor w,
                        struct tensor bias, struct linear_conv conv) {
  const struct device_caps *caps = &vulkan_device(c->backend)->caps;
  const bool bound = caps->max_storage_buffers >= MATVEC_CONV_BINDINGS;
  if (few_of(c, &in, w) && conv.longest == 1 && bound) {
    few_rows(c, &(struct fused){.in = in, .y = p, .w = w, .bias = bias, .conv_y = y, .conv = &conv});
    return false;
  }
  if (!few_of(c, &in, w) && conv.longest == 1 && y.dtype == DTYPE_F32 && rows_bound(c, w) == w.rows &&
      vulkan_narrow_takes(c, w, in.x.rows)) {
    struct narrow_product n = {.y = p, .w = w, .bias = bias, .norm = &in, .conv_y = y, .conv = &conv};
    if (is_ahead(c, &in, w) && vulkan_matmul_narrow(c, &n)) return false;
    in = (struct linear_input){.x = input_rows(c, &in, w)};
    n.norm = NULL;
    n.x = in.x;
    if (vulkan_matmul_narrow(c, &n)) return false;
  }
  vulkan_linear(c, p, in, w, bias, false);
  const struct tensor x = tensor_cols(p, conv.from, conv.a.C);
  if (conv.inputs && vulkan_conv_inputs(c, y, x, &conv)) return true;
  vulkan_short_conv(c, y, x, conv.weight, conv.bias, conv.history, conv.sequences, conv.longest, conv.a);
  return false;
}

void vulkan_linear_gated(struct recorder *c, struct tensor y, struct tensor gate_up, struct linear_input in,
                         struct tensor w, enum activation activation) {
  if (few_of(c, &in, w) && rows_bound(c, w) == w.rows && y.dtype == DTYPE_F32) {
    few_rows(c, &(struct fused){.in = in, .y = y, .w = w, .gated = true, .activation = activation});
    return;
  }
  if (is_ahead(c, &in, w) && y.dtype == DTYPE_F16 &&
      vulkan_matmul_narrow(
          c, &(struct narrow_product){.y = y, .w = w, .norm = &in, .gated = true, .activation = activation}))
    return;
  struct tensor x = input_rows(c, &in, w);
  if (rows_bound(c, w) == w.rows && vulkan_gated_matrix(c, y, x, w, activation)) return;
  tiles(c, gate_up, x, w, (struct tensor){0}, false);
  swiglu(c, y, gate_up, activation);
}
