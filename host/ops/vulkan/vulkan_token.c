// vulkan_token: the operations that treat each token by itself.
#include "vulkan_backend.h"

#include "add.h"
#include "copy.h"
#include "gated_norm.h"
#include "glu.h"
#include "mark.h"
#include "rmsnorm.h"
#include "sample.h"
#include "scatter.h"
#include "score.h"

static_assert(PLACE_OF_GATED == NORM_OF_GATED && PLACE_FIRST == NORM_FIRST && PLACE_ABSENT == NORM_ABSENT,
              "shaders and host number the norm's places alike");

void vulkan_mark(struct recorder *c, const struct mark *m) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const struct binding bindings[MARK_BINDINGS] = {[MARK_SEEN] = vulkan_bind(m->seen, m->seen),
                                                  [MARK_TOKENS] = vulkan_bind(m->tokens, m->seen),
                                                  [MARK_SEQUENCES] = vulkan_bind(m->sequences, m->seen)};
  const struct mark_args args = {.seen_stride = m->seen.stride};
  uint64_t T = (uint64_t)m->tokens.rows * m->tokens.cols;
  vulkan_dispatch(c, KERNEL_mark, &lanes, bindings, &args,
                  (struct grid){divide_up((uint32_t)T, lanes), 1, m->sequences.rows}, T);
}

void vulkan_norm(struct recorder *c, const struct norm *norm, struct tensor rms) {
  enum { MOST_HELD = 8 };
  const struct tensor y = norm->y, x = norm->x, last = norm->last;
  const uint32_t lanes = vulkan_plan(c)->lanes, held = divide_up(x.cols / 4, lanes);
  const bool fours = x.cols % 4 == 0 && x.stride % 4 == 0 && y.stride % 4 == 0 && held <= MOST_HELD;
  const uint32_t spec[RMSNORM_SPECS] = {[RMSNORM_SPEC_LANES] = lanes, [RMSNORM_SPEC_VECTORS] = fours ? held : 0};
  const struct binding bindings[RMSNORM_BINDINGS] = {[RMSNORM_Y] = vulkan_bind(y, x),
                                                     [RMSNORM_X] = vulkan_bind(x, x),
                                                     [RMSNORM_WEIGHT] = vulkan_bind(norm->weight, x),
                                                     [RMSNORM_SEQUENCES] = vulkan_bind(last, x),
                                                     [RMSNORM_RMS] = vulkan_bind(rms, y)};
  const struct rmsnorm_args args = {.D = x.cols,
                                    .y_stride = y.stride,
                                    .x_stride = x.stride,
                                    .last = last.buffer != NULL,
                                    .keep = rms.buffer != NULL,
                                    .eps = norm->eps};
  uint32_t rows = last.buffer ? last.rows : x.rows;
  const enum kernel_id kernel =
      vulkan_rounds_output(c, y) ? KERNEL_rmsnorm_rounded : kernel_variant(FAMILY_rmsnorm, y.dtype);
  vulkan_dispatch(c, kernel, spec, bindings, &args, (struct grid){rows, 1, 1}, 4ull * rows * x.cols);
}

// An x that is not aligned lies beside gate in one tensor (as up beside gate), and is bound from gate's first column
// on.
void vulkan_glu(struct recorder *c, const struct glu *g) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const struct tensor y = g->y, gate = g->gate;
  const bool beside = g->x.offset % TENSOR_ALIGN;
  const uint32_t from = beside ? (uint32_t)((g->x.offset - gate.offset) / sizeof(float)) : 0;
  assert(!beside || (g->x.buffer == gate.buffer && g->x.offset > gate.offset));
  struct tensor x = g->x;
  x.offset -= from * sizeof(float);
  x.cols += from;
  const struct binding bindings[GLU_BINDINGS] = {[GLU_Y] = vulkan_bind(y, y),
                                                 [GLU_GATE] = vulkan_bind(gate, y),
                                                 [GLU_X] = vulkan_bind_some(x, y, (uint64_t)y.rows * y.cols)};
  const struct glu_args args = {.T = y.rows,
                                .F = y.cols,
                                .activation = g->activation,
                                .y_stride = y.stride,
                                .gate_stride = gate.stride,
                                .x_stride = x.stride,
                                .x_from = from};
  const bool aligned =
      y.cols % 4 == 0 && from % 4 == 0 && y.stride % 4 == 0 && gate.stride % 4 == 0 && x.stride % 4 == 0;
  const uint32_t spec[GLU_SPECS] = {[GLU_SPEC_LANES] = lanes, [GLU_SPEC_ALIGNED] = aligned};
  const struct grid grid = {divide_up(aligned ? y.cols / 4 : y.cols, lanes), min32(y.rows, MAX_GROUPS),
                            divide_up(y.rows, MAX_GROUPS)};
  const enum kernel_id kernel = vulkan_rounds_output(c, y)
                                    ? KERNEL_glu_rounded
                                    : kernel_variant(x.dtype == DTYPE_F16 ? FAMILY_glu_x16 : FAMILY_glu, y.dtype);
  vulkan_dispatch(c, kernel, spec, bindings, &args, grid, 6ull * y.rows * y.cols);
}

void vulkan_add(struct recorder *c, const struct add *a) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const struct binding bindings[ADD_BINDINGS] = {
      [ADD_Y] = vulkan_bind(a->y, a->y), [ADD_X] = vulkan_bind(a->x, a->y), [ADD_Z] = vulkan_bind(a->z, a->y)};
  const bool aligned = a->y.cols % 4 == 0 && a->y.stride % 4 == 0 && a->x.stride % 4 == 0 && a->z.stride % 4 == 0;
  const uint32_t each = aligned ? 4 : 1;
  const uint32_t spec[ADD_SPECS] = {[ADD_SPEC_LANES] = lanes, [ADD_SPEC_ALIGNED] = aligned};
  const struct add_args args = {.cols = a->y.cols / each,
                                .y_stride = a->y.stride / each,
                                .x_stride = a->x.stride / each,
                                .z_stride = a->z.stride / each};
  vulkan_dispatch(c, KERNEL_add, spec, bindings, &args, (struct grid){divide_up(args.cols, lanes), a->y.rows, 1},
                  (uint64_t)a->y.rows * a->y.cols);
}

uint32_t vulkan_head_groups(const struct recorder *c, uint32_t heads) {
  return divide_up(heads, divide_up(vulkan_plan(c)->lanes, 32));
}

void vulkan_gated_norm(struct recorder *c, const struct gated_norm *norm) {
  enum { SUBGROUP_HOLDS = 4, WORKGROUP_HOLDS = 8 }; // vectors of four elements an invocation
  const struct tensor y = norm->y, gate = norm->gate, weight = norm->weight;
  const uint32_t n = norm->group_cols, groups = norm->groups, width = vulkan_plan(c)->subgroup_width;
  const bool aligned =
      n % 4 == 0 && norm->from % 4 == 0 && norm->x.stride % 4 == 0 && y.stride % 4 == 0 && gate.stride % 4 == 0;
  const bool subgroups = n <= 4 * SUBGROUP_HOLDS * (width ? width : 32);
  uint32_t lanes = vulkan_plan(c)->lanes, held = 0;
  while (!subgroups && lanes > 32 && lanes / 2 >= (aligned ? n / 4 : n))
    lanes /= 2; // no more than a group has elements
  if (aligned && subgroups && width) held = divide_up(n, 4 * width);
  if (aligned && !subgroups) held = divide_up(n / 4, lanes);
  const uint32_t spec[GATED_NORM_SPECS] = {[GATED_NORM_SPEC_LANES] = lanes,
                                           [GATED_NORM_SPEC_VECTORS] = held <= WORKGROUP_HOLDS ? held : 0,
                                           [GATED_NORM_SPEC_SUBGROUPS] = subgroups,
                                           [GATED_NORM_SPEC_PLACE] = norm->place,
                                           [GATED_NORM_SPEC_GATED] = gate.buffer != NULL};
  const uint64_t numbers = (uint64_t)y.rows * groups * n;
  const struct binding bindings[GATED_NORM_BINDINGS] = {[GATED_NORM_X] = vulkan_bind_some(norm->x, y, numbers),
                                                        [GATED_NORM_Y] = vulkan_bind_some(y, y, numbers),
                                                        [GATED_NORM_Z] = vulkan_bind(gate, y),
                                                        [GATED_NORM_WEIGHT] = vulkan_bind(weight, y)};
  const struct gated_norm_args args = {.groups = groups,
                                       .n = n,
                                       .eps = norm->eps,
                                       .x_stride = norm->x.stride,
                                       .y_stride = y.stride,
                                       .z_stride = gate.stride,
                                       .weight_step = weight.cols == n ? 0 : n,
                                       .from = norm->from};
  const uint32_t across = subgroups ? vulkan_head_groups(c, groups) : groups;
  vulkan_dispatch(c, kernel_variant(FAMILY_gated_norm, y.dtype), spec, bindings, &args,
                  (struct grid){y.rows, across, 1}, 8 * numbers);
}

// Many workgroups look for the largest logit of a large vocabulary. The other steps are one workgroup's, which computes
// a penalised logit again instead of storing it.
void vulkan_sample(struct recorder *c, const struct sample *s) {
  enum { PART = 10, LARGE = 16 << PART };
  const struct device_caps *caps = &vulkan_device(c->backend)->caps;
  const uint32_t B = s->sequences.rows, V = s->logits.cols, few = vulkan_plan(c)->lanes;
  uint32_t lanes = 4 * few; // one workgroup reads the whole vocabulary about twenty times
  while (lanes > caps->max_invocations || lanes > caps->max_workgroup[0] || 28 * lanes > caps->shared_bytes) lanes /= 2;
  struct binding bindings[SAMPLE_BINDINGS] = {[SAMPLE_TOKENS] = vulkan_bind(s->tokens, s->tokens),
                                              [SAMPLE_SEQUENCES] = vulkan_bind(s->sequences, s->tokens),
                                              [SAMPLE_SEEN] = vulkan_bind(s->seen, s->tokens),
                                              [SAMPLE_LOGITS] = vulkan_bind(s->logits, s->tokens),
                                              [SAMPLE_SAMPLING] = vulkan_bind(s->sampling, s->tokens),
                                              [SAMPLE_PARTS] = vulkan_bind_some(s->scratch, s->tokens, 2ull * B)};
  struct sample_args args = {.V = V,
                             .logits_stride = s->logits.stride,
                             .seen_stride = s->seen.stride,
                             .part = PART,
                             .parts_stride = s->scratch.stride};
  if (V >= LARGE) {
    while (divide_up(V, 1u << args.part) > lanes) args.part++;
    args.parts = divide_up(V, 1u << args.part);
    bindings[SAMPLE_PARTS] = vulkan_bind_some(s->scratch, s->tokens, 2ull * B * args.parts);
    const uint32_t spec[SAMPLE_SPECS] = {[SAMPLE_SPEC_LANES] = few, [SAMPLE_SPEC_PARTS] = 1};
    vulkan_dispatch(c, KERNEL_sample, spec, bindings, &args, (struct grid){args.parts, B, 1}, (uint64_t)B * V);
  }
  const uint32_t spec[SAMPLE_SPECS] = {[SAMPLE_SPEC_LANES] = lanes};
  vulkan_dispatch(c, KERNEL_sample, spec, bindings, &args, (struct grid){B, 1, 1}, 4ull * B * V);
}

void vulkan_copy(struct recorder *c, const struct copy *copy) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const struct tensor to = copy->to, from = copy->from;
  struct copy_args args = {.rows = to.rows,
                           .cols = to.cols,
                           .to_stride = to.stride,
                           .from_stride = from.stride,
                           .zero = from.buffer == NULL};
  uint32_t aligned = to.cols % 4 == 0 && to.stride % 4 == 0 && from.stride % 4 == 0;
  if (aligned) args.cols /= 4, args.to_stride /= 4, args.from_stride /= 4;
  const uint32_t spec[COPY_SPECS] = {[COPY_SPEC_LANES] = lanes, [COPY_SPEC_ALIGNED] = aligned};
  const struct binding t = vulkan_bind(to, to), f = vulkan_bind(from, to);
  const struct binding bindings[COPY_BINDINGS] = {[COPY_TO] = t, [COPY_FROM] = f};
  uint32_t x = divide_up(args.cols, lanes), y = args.rows;
  vulkan_dispatch(c, KERNEL_copy, spec, bindings, &args,
                  (struct grid){x < MAX_GROUPS ? x : MAX_GROUPS, y < MAX_GROUPS ? y : MAX_GROUPS, 1},
                  (uint64_t)to.rows * to.cols);
}

void vulkan_scatter(struct recorder *c, const struct scatter *s) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const struct scatter_args args = {.cols = s->from.cols, .to_stride = s->to.stride, .from_stride = s->from.stride};
  const struct binding bindings[SCATTER_BINDINGS] = {[SCATTER_TO] = vulkan_bind(s->to, s->to),
                                                     [SCATTER_FROM] = vulkan_bind(s->from, s->from),
                                                     [SCATTER_SEQUENCES] = vulkan_bind(s->sequences, s->to)};
  vulkan_dispatch(c, KERNEL_scatter, &lanes, bindings, &args,
                  (struct grid){divide_up(s->from.cols, lanes), s->sequences.rows, 1},
                  (uint64_t)s->sequences.rows * s->from.cols);
}

void vulkan_score(struct recorder *c, const struct score *s) {
  const uint32_t lanes = vulkan_plan(c)->lanes;
  const struct score_args args = {.V = s->logits.cols, .logits_stride = s->logits.stride, .first = s->first};
  const struct binding bindings[SCORE_BINDINGS] = {[SCORE_SCORES] = vulkan_bind(s->scores, s->scores),
                                                   [SCORE_LOGITS] = vulkan_bind(s->logits, s->logits),
                                                   [SCORE_TARGETS] = vulkan_bind(s->targets, s->targets)};
  vulkan_dispatch(c, KERNEL_score, &lanes, bindings, &args, (struct grid){s->logits.rows, 1, 1},
                  6ull * s->logits.rows * s->logits.cols);
}
