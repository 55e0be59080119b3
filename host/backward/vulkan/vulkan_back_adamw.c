// vulkan_back_adamw: what a trainer computes with gradients and weights: sums of squares, steps of AdamW, and sums of
// numbers that lie anywhere.
#include "backward_vulkan.h"

#include "adamw.h"
#include "blend.h"
#include "sum_squares.h"

// Binds a grid from a multiple of TENSOR_ALIGN on, which the kernel's `at` follows.
static struct binding bind_grid(const struct walk_grid *g, uint32_t rows, uint32_t cols, struct grid_args *args) {
  enum { FLOATS = TENSOR_ALIGN / sizeof(float) };
  const uint64_t from = g->at / FLOATS * FLOATS;
  const uint64_t end = g->at + (uint64_t)(rows - 1) * g->row + (uint64_t)(cols - 1) * g->col + 1;
  *args = (struct grid_args){.at = (uint32_t)(g->at - from), .row = g->row, .col = g->col};
  return (struct binding){.buffer = g->buffer, .offset = from * sizeof(float), .bytes = (end - from) * sizeof(float)};
}

// Whether the numbers follow each other, so that they may be taken for one row.
static bool is_flat(const struct walk_grid *g, uint32_t rows, uint32_t cols) {
  return !g->buffer || (g->col == 1 && (g->row == cols || rows == 1));
}

static struct grid numbers_grid(const struct walk *w, uint32_t n) {
  const uint64_t groups = divide_up(n, vulkan_plan(w->c)->block_lanes);
  return (struct grid){groups < MAX_GROUPS ? groups : MAX_GROUPS, 1, 1};
}

void vulkan_back_squares(struct walk *w, struct tensor sums, const struct walk_squares *s) {
  if (w->status) return;
  const uint32_t n = s->rows * s->cols;
  const uint32_t spec[SUM_SQUARES_SPECS] = {[SUM_SQUARES_SPEC_LANES] = vulkan_plan(w->c)->lanes,
                                            [SUM_SQUARES_SPEC_FLAT] = is_flat(&s->from, s->rows, s->cols)};
  struct sum_squares_args args = {
      .n = n, .cols = s->cols, .each = WALK_SQUARES, .first = s->first, .factor = (float)s->factor};
  const struct binding bindings[SUM_SQUARES_BINDINGS] = {[SUM_SQUARES_SUMS] = vulkan_bind(sums, sums),
                                                         [SUM_SQUARES_FROM] =
                                                             bind_grid(&s->from, s->rows, s->cols, &args.from)};
  back_dispatch(w, BACKWARD_sum_squares, spec, bindings, &args, (struct grid){walk_square_sums(n), 1, 1}, 8ull * n);
}

void vulkan_back_adamw(struct walk *w, const struct walk_adamw *a) {
  if (w->status) return;
  const uint32_t n = a->rows * a->cols;
  const bool flat = is_flat(&a->p, a->rows, a->cols) && is_flat(&a->g, a->rows, a->cols) &&
                    is_flat(&a->m, a->rows, a->cols) && is_flat(&a->v, a->rows, a->cols);
  const uint32_t spec[ADAMW_SPECS] = {[ADAMW_SPEC_LANES] = vulkan_plan(w->c)->block_lanes, [ADAMW_SPEC_FLAT] = flat};
  struct adamw_args args = {.n = n,
                            .cols = a->cols,
                            .factor = (float)a->factor,
                            .beta1 = (float)a->beta1,
                            .rest1 = (float)(1 - a->beta1),
                            .beta2 = (float)a->beta2,
                            .rest2 = (float)(1 - a->beta2),
                            .decay = (float)a->decay,
                            .rate = (float)a->rate,
                            .second = (float)a->second,
                            .eps = (float)a->eps};
  const struct binding bindings[ADAMW_BINDINGS] = {[ADAMW_P] = bind_grid(&a->p, a->rows, a->cols, &args.p),
                                                   [ADAMW_G] = bind_grid(&a->g, a->rows, a->cols, &args.g),
                                                   [ADAMW_M] = bind_grid(&a->m, a->rows, a->cols, &args.m),
                                                   [ADAMW_V] = bind_grid(&a->v, a->rows, a->cols, &args.v)};
  back_dispatch(w, BACKWARD_adamw, spec, bindings, &args, numbers_grid(w, n), 20ull * n);
}

void vulkan_back_blend(struct walk *w, const struct walk_blend *b) {
  if (w->status) return;
  const uint32_t n = b->rows * b->cols;
  const bool flat =
      is_flat(&b->to, b->rows, b->cols) && is_flat(&b->x, b->rows, b->cols) && is_flat(&b->y, b->rows, b->cols);
  const uint32_t spec[BLEND_SPECS] = {[BLEND_SPEC_LANES] = vulkan_plan(w->c)->block_lanes, [BLEND_SPEC_FLAT] = flat};
  struct blend_args args = {
      .n = n, .cols = b->cols, .has_y = b->y.buffer != NULL, .factor = b->factor, .plus = b->plus};
  const struct binding x = bind_grid(&b->x, b->rows, b->cols, &args.x);
  const struct binding bindings[BLEND_BINDINGS] = {[BLEND_TO] = bind_grid(&b->to, b->rows, b->cols, &args.to),
                                                   [BLEND_X] = x,
                                                   [BLEND_Y] =
                                                       b->y.buffer ? bind_grid(&b->y, b->rows, b->cols, &args.y) : x};
  back_dispatch(w, BACKWARD_blend, spec, bindings, &args, numbers_grid(w, n), 4ull * n);
}
