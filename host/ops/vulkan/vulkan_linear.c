// vulkan_linear: products with weights. Few rows read the weights once, by matvec, which can also compute the norm
// before the product and the operation after it. Many rows are computed in tiles, with separate kernels around them.
#include "vulkan_backend.h"

#include "activation.h"
#include "embed.h"
#include "formats.h"
#include "matmul.h"
#include "matvec.h"
#include "matvec_dot.h"

static_assert(FORMAT_Q8_0 == DTYPE_TILED_Q8_0 && FORMAT_Q4_0 == DTYPE_TILED_Q4_0 && FORMAT_Q5_0 == DTYPE_TILED_Q5_0 &&
                  FORMAT_Q4_K == DTYPE_TILED_Q4_K && FORMAT_Q5_K == DTYPE_TILED_Q5_K &&
                  FORMAT_Q6_K == DTYPE_TILED_Q6_K && FORMAT_IQ4_NL == DTYPE_TILED_IQ4_NL &&
                  FORMAT_IQ4_XS == DTYPE_TILED_IQ4_XS && DTYPE_I32 == FORMAT_IQ4_XS + 1,
              "shaders and host number the formats alike");
static_assert(ACT_IDENTITY == ACTIVATION_IDENTITY && ACT_SILU == ACTIVATION_SILU && ACT_RELU == ACTIVATION_RELU &&
                  ACT_ELU1 == ACTIVATION_ELU1 && ACT_POWLU == ACTIVATION_POWLU && ACT_SIGMOID == ACTIVATION_SIGMOID,
              "shaders and host number the activations alike");

// The most rows of w that one descriptor can bind. Each range must begin at a multiple of TENSOR_ALIGN, so the result
// is a multiple of `least` rows. Kernels count elements in 32 bits.
static uint32_t rows_bound(const struct recorder *c, struct tensor w) {
  const uint64_t row = dtype_bytes(w.dtype, w.stride);
  uint64_t least = 16;
  while (least * row % TENSOR_ALIGN) least *= 2;
  const uint64_t bytes = vulkan_plan(c)->binding_bytes / row, elements = UINT32_MAX / w.stride;
  const uint64_t rows = (bytes < elements ? bytes : elements) / least * least;
  return (uint32_t)(rows < least ? least : rows < w.rows ? rows : w.rows);
}

// The rows of w from `first` on that one dispatch reads: as many as one descriptor binds, of one format.
static struct tensor part_at(const struct recorder *c, struct tensor w, uint32_t first) {
  if (w.mixed) {
    const struct tensor *one = w.mixed;
    for (; first >= one->rows; one++) first -= one->rows;
    w = *one;
  }
  const uint32_t rows = rows_bound(c, w);
  return tensor_rows(w, first, w.rows - first < rows ? w.rows - first : rows);
}

// Whether one dispatch reads all of w.
static bool is_whole(const struct recorder *c, struct tensor w) { return !w.mixed && rows_bound(c, w) == w.rows; }

void vulkan_embed(struct recorder *c, const struct embed *e) {
  const struct tensor x = e->x, table = e->table;
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const uint32_t spec[EMBED_SPECS] = {[EMBED_SPEC_LANES] = lanes, [EMBED_SPEC_FORMAT] = table.dtype};
  struct embed_args args = {.D = x.cols, .x_stride = x.stride, .table_stride = table.stride};
  assert(!table.mixed);
  for (; args.first < table.rows; args.first += args.rows) {
    const struct tensor part = part_at(c, table, args.first);
    args.rows = part.rows;
    struct binding weights = vulkan_bind_weights(part);
    if (x.rows < part.rows) weights.touched = dtype_bytes(table.dtype, (uint64_t)x.rows * x.cols);
    const struct binding bindings[EMBED_BINDINGS] = {
        [EMBED_X] = vulkan_bind(x, x), [EMBED_WEIGHTS] = weights, [EMBED_TOKENS] = vulkan_bind(e->tokens, x)};
    vulkan_dispatch(c, kernel_variant(FAMILY_embed, table.dtype), spec, bindings, &args,
                    (struct grid){divide_up(x.cols, 8 * lanes), x.rows, 1}, (uint64_t)x.rows * x.cols);
  }
}

// ---------------------------------------------------------------- few rows

// A product and the operations that its kernel joins.
struct fused {
  struct linear_input in;
  struct tensor y, w, bias;
  bool add, glu;
  enum activation activation;     // of glu
  const struct linear_conv *conv; // NULL: none
};

static uint32_t tokens_of(uint32_t rows) { return rows > 4 ? 8 : rows > 2 ? 4 : rows; }

// Whether matvec computes a product of so many rows. Up to 8 rows share every load of a weight. Without coopmat, matvec
// takes more: workgroups with the same weights and other rows are neighbours, so memory still delivers the weights
// once. f16: the input is f16, or will be; only then can coopmat kernels take few rows.
static bool few(const struct recorder *c, struct tensor w, uint32_t rows, bool f16) {
  const struct plan_products *plan = vulkan_products(c);
  if (!vulkan_takes_f16(c, w)) return rows < plan->matvec_below;
  return rows < plan->narrow_from || (rows <= 8 && !(f16 && vulkan_narrow_takes(c, w, rows)));
}

static bool few_of(const struct recorder *c, const struct linear_input *in, struct tensor w) {
  return few(c, w, in->x.rows, in->weight.buffer || in->x.dtype == DTYPE_F16);
}

// Dispatches matvec or matvec_dot in so many workgroups.
static void dispatch_rows(struct recorder *c, const struct fused *f, struct tensor w, uint32_t first, enum kernel_id id,
                          const uint32_t *spec, uint32_t groups) {
  const struct tensor x = f->in.x;
  const struct binding from = vulkan_bind(x, x), weight = vulkan_bind(f->in.weight, x);
  struct binding bindings[MATVEC_CONV_BINDINGS] = {[MATVEC_Y] = vulkan_bind_output(f->y, f->add),
                                                   [MATVEC_X] = from,
                                                   [MATVEC_WEIGHTS] = vulkan_bind_weights(w),
                                                   [MATVEC_BIAS] = vulkan_bind(f->bias, x),
                                                   [MATVEC_NORM] = weight};
  struct matvec_args args = {.T = x.rows,
                             .N = f->glu ? w.rows / 2 : w.rows,
                             .K = x.cols,
                             .y_stride = f->y.stride,
                             .x_stride = x.stride,
                             .w_stride = w.stride,
                             .first = first,
                             .add = f->add,
                             .has_bias = f->bias.buffer != NULL,
                             .eps = f->in.eps};
  if (f->conv)
    args.conv = vulkan_conv_step(bindings + MATVEC_BINDINGS, x, f->conv);
  else
    vulkan_no_conv_step(bindings + MATVEC_BINDINGS, bindings[MATVEC_Y]);
  const uint32_t y = divide_up(groups, MAX_GROUPS);
  vulkan_dispatch(c, id, spec, bindings, &args, (struct grid){divide_up(groups, y ? y : 1), y, 1},
                  2ull * x.rows * w.rows * x.cols);
}

static void few_rows_part(struct recorder *c, const struct fused *f, struct tensor w, uint32_t first) {
  const struct tensor x = f->in.x;
  const uint32_t tokens = tokens_of(x.rows), N = f->glu ? w.rows / 2 : w.rows;
  const bool norm = f->in.weight.buffer != NULL;
  const struct plan_matvec m = plan_matvec(vulkan_products(c), x.cols, N, tokens, norm, f->glu);
  const struct conv *conv = f->conv ? f->conv->conv : NULL;
  const uint32_t spec[MATVEC_CONV_SPECS] = {
      [MATVEC_SPEC_LANES] = m.lanes * m.sets,
      [MATVEC_SPEC_ROWS] = m.rows,
      [MATVEC_SPEC_TOKENS] = tokens,
      [MATVEC_SPEC_UNROLL] = m.unroll,
      [MATVEC_SPEC_ALIGNED] = x.cols % 4 == 0 && x.stride % 4 == 0,
      [MATVEC_SPEC_NORM] = norm,
      [MATVEC_SPEC_GATED] = f->glu,
      [MATVEC_SPEC_SETS] = m.sets,
      [MATVEC_SPEC_LENGTH] = m.sets > 1 ? x.cols : 0,
      [MATVEC_SPEC_FORMAT] = w.dtype,
      [MATVEC_SPEC_ACTIVATION] = f->activation,
      [MATVEC_CONV_SPEC_W] = conv ? conv->a.W : 0,
      [MATVEC_CONV_SPEC_LONE] = conv && x.rows == 1 && conv->sequences.rows == 1 && conv->history.rows == 1};
  dispatch_rows(c, f, w, first, kernel_variant(conv ? FAMILY_matvec_conv : FAMILY_matvec, w.dtype), spec,
                divide_up(N, m.rows * m.sets) * divide_up(x.rows, tokens));
}

// The processors for a part of f's matrix. Parts that are bound apart run at the same time, so each gets its share of
// the processors: a processor that computed several parts would make the integers of x for each.
static uint32_t processors_of(const struct recorder *c, const struct fused *f, struct tensor part) {
  const uint32_t processors = vulkan_plan(c)->processors;
  uint64_t bytes = 0;
  if (!f->w.mixed) return processors;
  for (uint32_t i = 0, first = 0; first < f->w.rows; first += f->w.mixed[i++].rows) {
    if (first * sizeof(float) % TENSOR_ALIGN) return processors; // these wait for each other
    bytes += vulkan_bind_weights(f->w.mixed[i]).bytes;
  }
  return max32((uint32_t)(processors * vulkan_bind_weights(part).bytes / bytes), 1);
}

// Whether a part's product is one token's with tiles, in integers.
static bool takes_dot(const struct recorder *c, const struct fused *f, struct tensor w, struct plan_dot *m) {
  return f->in.x.rows == 1 && dtype_is_tiles(w.dtype) && vulkan_list(c)->matrices &&
         plan_dot(vulkan_products(c), f->in.x.cols, w.rows, f->glu, processors_of(c, f, w), m);
}

void vulkan_dot_spec(const struct recorder *c, const struct plan_dot *m, uint32_t K, bool gated, enum dtype tiles,
                     uint32_t *spec) {
  spec[MATVEC_DOT_SPEC_LANES] = m->lanes;
  spec[MATVEC_DOT_SPEC_K] = K;
  spec[MATVEC_DOT_SPEC_TEAMS] = m->teams;
  spec[MATVEC_DOT_SPEC_ROWS] = m->rows;
  spec[MATVEC_DOT_SPEC_AHEAD] = m->ahead;
  spec[MATVEC_DOT_SPEC_GATED] = gated;
  spec[MATVEC_DOT_SPEC_FORMAT] = tiles;
  spec[MATVEC_DOT_SPEC_WIDTH] = vulkan_plan(c)->subgroup_width;
}

// False: the kernel does not take the part.
static bool one_row_of_tiles(struct recorder *c, const struct fused *f, struct tensor w, uint32_t first) {
  const struct tensor x = f->in.x;
  const uint32_t N = f->glu ? w.rows / 2 : w.rows;
  const struct conv *conv = f->conv ? f->conv->conv : NULL;
  struct plan_dot m;
  if (!takes_dot(c, f, w, &m)) return false;
  uint32_t spec[MATVEC_DOT_SPECS] = {[MATVEC_DOT_SPEC_NORM] = f->in.weight.buffer != NULL,
                                     [MATVEC_DOT_SPEC_ACTIVATION] = f->activation,
                                     [MATVEC_DOT_SPEC_CONV_W] = conv ? conv->a.W : 0,
                                     [MATVEC_DOT_SPEC_LONE] =
                                         conv && conv->sequences.rows == 1 && conv->history.rows == 1};
  vulkan_dot_spec(c, &m, x.cols, f->glu, w.dtype, spec);
  dispatch_rows(c, f, w, first, KERNEL_matvec_dot_blocks, spec, divide_up(N, m.rows * m.teams));
  return true;
}

// The product with `part`, rows of w from *first on. One row's outputs are bound by themselves, and without a
// convolution of others, so that parts do not wait for each other. *first is then 0.
static struct fused part_of(const struct fused *f, struct tensor part, uint32_t *first, struct linear_conv *conv) {
  struct fused p = *f;
  if (f->in.x.rows > 1 || part.rows == f->w.rows || *first * sizeof(float) % TENSOR_ALIGN) return p;
  p.y = tensor_cols(f->y, *first, part.rows);
  if (f->bias.buffer) p.bias = tensor_cols(f->bias, *first, part.rows);
  if (f->conv) {
    *conv = *f->conv;
    conv->from -= *first; // wraps where the part's rows are behind: the kernel's sum wraps back
    const bool any = *first < f->conv->from + f->conv->conv->a.C && f->conv->from < *first + part.rows;
    p.conv = any ? conv : NULL;
  }
  *first = 0;
  return p;
}

static void few_rows(struct recorder *c, const struct fused *f) {
  assert(f->in.x.cols == f->w.cols && f->w.stride % 8 == 0 && (!f->glu || is_whole(c, f->w)));
  struct tensor part;
  for (uint32_t first = 0; first < f->w.rows; first += part.rows) {
    struct linear_conv conv;
    uint32_t row = first;
    part = part_at(c, f->w, first);
    const struct fused p = part_of(f, part, &row, &conv);
    if (!one_row_of_tiles(c, &p, part, row)) few_rows_part(c, &p, part, row);
  }
}

// Whether the kernels of few rows have the convolution behind the product: with tiles only matvec_dot.
static bool few_rows_convolve(const struct recorder *c, const struct fused *f) {
  struct tensor part;
  struct plan_dot m;
  for (uint32_t first = 0; first < f->w.rows; first += part.rows) {
    part = part_at(c, f->w, first);
    if (dtype_is_tiles(part.dtype) && !takes_dot(c, f, part, &m)) return false;
  }
  return vulkan_device(c->backend)->caps.max_storage_buffers >= MATVEC_CONV_BINDINGS;
}

// ---------------------------------------------------------------- many rows

void vulkan_matmul_spec(const struct recorder *c, struct tensor x, struct tensor w, const struct plan_tile *tile,
                        uint32_t *spec) {
  spec[MATMUL_SPEC_LANES] = plan_matmul_lanes(tile);
  spec[MATMUL_SPEC_TILE_T] = tile->tile_t;
  spec[MATMUL_SPEC_TILE_N] = tile->tile_n;
  spec[MATMUL_SPEC_TILE_K] = tile->tile_k;
  spec[MATMUL_SPEC_SUB_T] = tile->sub_t;
  spec[MATMUL_SPEC_SUB_N] = tile->sub_n;
  spec[MATMUL_SPEC_SLICES] = tile->slices;
  spec[MATMUL_SPEC_ALIGNED] = x.cols % 4 || x.stride % 4 ? 0 : x.cols % tile->tile_k ? 1 : 2;
  spec[MATMUL_SPEC_BUFFERS] = tile->buffers;
  spec[MATMUL_SPEC_UNROLL] = tile->unroll;
  spec[MATMUL_SPEC_GROUPED] = !vulkan_list(c)->matrices;
  spec[MATMUL_SPEC_FORMAT] = w.dtype;
}

// Any number of rows, in tiles, through shared memory and without coopmat.
static void many_rows(struct recorder *c, const struct matrix_product *p) {
  const struct plan_tile *tile = plan_matmul_tile(vulkan_products(c), p->x.rows, p->w.rows);
  uint32_t spec[MATMUL_SPECS];
  vulkan_matmul_spec(c, p->x, p->w, tile, spec);
  const struct binding x = vulkan_bind(p->x, p->x);
  const struct binding bindings[MATMUL_BINDINGS] = {[MATMUL_Y] = vulkan_bind_output(p->y, p->add),
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
  vulkan_dispatch(c, kernel_variant(FAMILY_matmul, p->w.dtype), spec, bindings, &args,
                  (struct grid){divide_up(p->w.rows, tile->tile_n), divide_up(p->x.rows, tile->tile_t), 1},
                  2ull * p->x.rows * p->w.rows * p->x.cols);
}

static void tiles(struct recorder *c, const struct matrix_product *whole) {
  const struct tensor w = whole->w;
  assert(whole->x.cols == w.cols && whole->y.cols == w.rows && whole->y.rows == whole->x.rows && w.stride % 8 == 0);
  struct matrix_product p = *whole;
  for (; p.first < w.rows; p.first += p.w.rows) {
    p.w = part_at(c, w, p.first);
    if (!vulkan_matmul_matrix(c, &p)) many_rows(c, &p);
  }
}

static struct tensor input_rows(struct recorder *c, const struct linear_input *in, struct tensor w) {
  if (!in->weight.buffer) {
    if (!in->h.buffer || in->x.dtype == DTYPE_F16 || !vulkan_takes_f16(c, w)) return in->x;
    vulkan_round(c, in->h, in->x);
    return in->h;
  }
  struct tensor h = tensor_as(tensor_rows(in->h, 0, in->x.rows), vulkan_takes_f16(c, w) ? DTYPE_F16 : DTYPE_F32);
  struct tensor rms = h.dtype == DTYPE_F16 ? vulkan_norm_rms(c, in) : (struct tensor){0};
  vulkan_norm(c, &(struct norm){.y = h, .x = in->x, .weight = in->weight, .eps = in->eps}, rms);
  if (in->ahead) *in->ahead = (struct norm_ahead){.estimated = rms.buffer != NULL, .h = in->h}; // h overwrites the rest
  return h;
}

// Whether the product before has prepared the norm for matmul_narrow.
static bool is_prepared(const struct recorder *c, const struct linear_input *in, struct tensor w) {
  return in->weight.buffer && in->ahead && in->ahead->parts && is_whole(c, w) && vulkan_narrow_takes(c, w, in->x.rows);
}

// ---------------------------------------------------------------- products and the operations around them

enum dtype vulkan_input_dtype(const struct recorder *c, struct tensor w, uint32_t T) {
  return !few(c, w, T, true) && vulkan_takes_f16(c, w) ? DTYPE_F16 : DTYPE_F32;
}

bool vulkan_linear_norms(const struct recorder *c, struct tensor w) { return few(c, w, 1, true); }

void vulkan_linear(struct recorder *c, struct tensor y, const struct linear_input *in, const struct linear *p,
                   bool add) {
  const struct tensor w = p->w;
  struct narrow_product n = {.p = {.y = y, .w = w, .bias = p->bias, .add = add}, .norm = in};
  if (few_of(c, in, w)) {
    few_rows(c, &(struct fused){.in = *in, .y = y, .w = w, .bias = p->bias, .add = add});
  } else if (!is_prepared(c, in, w) || !vulkan_matmul_narrow(c, &n)) {
    n.p.x = input_rows(c, in, w);
    tiles(c, &n.p);
  }
}

void vulkan_linear_residual(struct recorder *c, struct tensor x, const struct linear_input *in, const struct linear *p,
                            const struct linear_input *next) {
  struct norm_ahead *ahead = next ? next->ahead : NULL;
  if (ahead) ahead->parts = 0;
  if (ahead && ahead->estimated && !in->weight.buffer && !few_of(c, in, p->w) && is_whole(c, p->w) &&
      vulkan_matmul_narrow(c, &(struct narrow_product){
                                  .p = {.y = x, .x = in->x, .w = p->w, .bias = p->bias, .add = true}, .next = next}))
    return;
  vulkan_linear(c, x, in, p, true);
}

bool vulkan_linear_conv(struct recorder *c, const struct linear_input *in, const struct linear *p,
                        const struct linear_conv *conv) {
  const struct tensor w = p->w;
  const bool single = vulkan_list(c)->longest == 1, few_tokens = few_of(c, in, w);
  struct linear_input rows = *in;
  const struct fused joined = {.in = *in, .y = p->y, .w = w, .bias = p->bias, .conv = conv};
  if (single && few_tokens && few_rows_convolve(c, &joined)) {
    few_rows(c, &joined);
    return false;
  }
  if (single && !few_tokens && conv->conv->y.dtype == DTYPE_F32 && is_whole(c, w) &&
      vulkan_narrow_takes(c, w, in->x.rows)) {
    struct narrow_product n = {.p = {.y = p->y, .w = w, .bias = p->bias}, .norm = in, .conv = conv};
    if (is_prepared(c, in, w) && vulkan_matmul_narrow(c, &n)) return false;
    rows = (struct linear_input){.x = input_rows(c, in, w)};
    n.norm = NULL;
    n.p.x = rows.x;
    if (vulkan_matmul_narrow(c, &n)) return false;
  }
  vulkan_linear(c, p->y, &rows, p, false);
  if (conv->inputs && vulkan_conv_inputs(c, conv)) return true;
  vulkan_conv(c, conv->conv);
  return false;
}

void vulkan_linear_glu(struct recorder *c, const struct linear_input *in, const struct linear *p, const struct glu *g) {
  const struct tensor w = p->w;
  const bool whole = is_whole(c, w);
  if (few_of(c, in, w) && whole && g->y.dtype == DTYPE_F32) {
    few_rows(c,
             &(struct fused){.in = *in, .y = g->y, .w = w, .bias = p->bias, .glu = true, .activation = g->activation});
    return;
  }
  if (p->bias.buffer) {
    vulkan_linear(c, p->y, in, p, false);
    vulkan_glu(c, g);
    return;
  }
  struct narrow_product n = {.p = {.y = g->y, .w = w, .glu = true, .activation = g->activation}, .norm = in};
  if (is_prepared(c, in, w) && g->y.dtype == DTYPE_F16 && vulkan_matmul_narrow(c, &n)) return;
  n.p.x = input_rows(c, in, w);
  if (whole && n.p.x.dtype == DTYPE_F16 && g->y.dtype == DTYPE_F16 && vulkan_matmul_matrix(c, &n.p)) return;
  tiles(c, &(struct matrix_product){.y = p->y, .x = n.p.x, .w = w});
  vulkan_glu(c, g);
}
