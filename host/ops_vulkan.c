// ops_vulkan: the Vulkan backend: memory and recording, which runtime/ does, and the operations that treat tokens alone;
// ops_vulkan_linear.c has products with weights, ops_vulkan_mix.c and so on the others. lower.c runs a list with them.
#include "ops_vulkan.h"

#include "add.h"
#include "copy.h"
#include "mark.h"
#include "output_norm.h"
#include "rmsnorm.h"
#include "sample.h"
#include "scatter.h"
#include "score.h"

#include <stdlib.h>

// ---------------------------------------------------------------- memory

static deltaic_status vulkan_buffer_create(struct backend *b, enum memory_kind kind, uint64_t bytes, const char *what,
                                           struct buffer *out) {
  return buffer_create(vulkan_device(b), kind, bytes, what, out);
}

static void vulkan_buffer_free(struct backend *b, struct buffer *buffer) { buffer_free(vulkan_device(b), buffer); }

static deltaic_status vulkan_buffer_write(struct backend *b, struct buffer *to, uint64_t offset, const void *data,
                                          uint64_t bytes) {
  return buffer_write(vulkan_device(b), to, offset, data, bytes);
}

static deltaic_status vulkan_buffer_write_by(struct backend *b, struct buffer *to, uint64_t offset, uint64_t bytes,
                                             uint64_t unit, buffer_fill fill, void *context) {
  return buffer_write_by(vulkan_device(b), to, offset, bytes, unit, fill, context);
}

static deltaic_status vulkan_buffer_read(struct backend *b, struct buffer *from, uint64_t offset, void *data,
                                         uint64_t bytes) {
  return buffer_read(vulkan_device(b), from, offset, data, bytes);
}

static deltaic_status vulkan_buffer_zero(struct backend *b, struct buffer *buffer, uint64_t offset, uint64_t bytes) {
  return buffer_zero(vulkan_device(b), buffer, offset, bytes);
}

// ---------------------------------------------------------------- recording

static struct commands *commands_of(const struct recorder *c) { return ((const struct vulkan_recorder *)c)->commands; }

static void vulkan_recorder_free(struct recorder *c) {
  if (!c) return;
  commands_free(commands_of(c));
  free(c);
}

static deltaic_status vulkan_recorder_create(struct backend *b, struct recorder **out) {
  *out = NULL;
  struct vulkan_recorder *r = calloc(1, sizeof *r);
  if (!r) return fail_memory("a recorder", sizeof *r);
  r->base = (struct recorder){.backend = b, .functions = b->functions};
  deltaic_status status = commands_create(vulkan_device(b), &r->commands);
  if (status)
    vulkan_recorder_free(&r->base);
  else
    *out = &r->base;
  return status;
}

static void vulkan_recorder_begin(struct recorder *c, bool replay, const atomic_bool *cancel) {
  commands_begin(commands_of(c), replay ? COMMANDS_REPLAY : COMMANDS_STREAM, cancel);
}

static deltaic_status vulkan_recorder_run(struct recorder *c) { return commands_submit(commands_of(c)); }

static deltaic_counters vulkan_recorder_counters(const struct recorder *c) {
  struct commands_counters n = commands_count(commands_of(c));
  return (deltaic_counters){.submits = n.submits, .recordings = n.recordings, .dispatches = n.dispatches};
}

static deltaic_status vulkan_recorder_profile(struct recorder *c, bool on) {
  return commands_profile(commands_of(c), on);
}

static deltaic_status vulkan_recorder_busy(struct recorder *c, bool on) { return commands_busy(commands_of(c), on); }

static size_t vulkan_recorder_times(struct recorder *c, deltaic_kernel_time *times, size_t capacity) {
  return commands_times(commands_of(c), times, capacity);
}

struct binding vulkan_bind(struct tensor t, struct tensor or) {
  if (!t.buffer) t = or ;
  return (struct binding){.buffer = t.buffer,
                          .offset = t.offset,
                          .bytes = tensor_bytes(&t),
                          .touched = dtype_bytes(t.dtype, (uint64_t)t.rows * t.cols)};
}

struct binding vulkan_bind_some(struct tensor t, struct tensor or, uint64_t numbers) {
  struct binding b = vulkan_bind(t, or);
  b.touched = dtype_bytes(t.dtype, numbers);
  return b;
}

struct binding vulkan_bind_sums(struct tensor y, bool add) {
  struct binding b = vulkan_bind(y, y);
  b.overwritten = !add;
  return b;
}

struct binding vulkan_bind_weights(struct tensor w) {
  const uint64_t bytes = dtype_bytes(w.dtype, (uint64_t)w.rows * w.stride);
  return (struct binding){.buffer = w.buffer, .offset = w.offset, .bytes = round_up(bytes, 4)};
}

void vulkan_dispatch(struct recorder *c, enum kernel_id id, const uint32_t *spec, const struct binding *bindings,
                     const void *push, uint64_t x, uint64_t y, uint64_t z, uint64_t operations) {
  struct commands *commands = commands_of(c);
  const struct kernel *kernel;
  if (x > MAX_GROUPS || y > MAX_GROUPS || z > MAX_GROUPS) {
    commands_fail(commands, fail(DELTAIC_INTERNAL, "%s: a grid of %llu x %llu x %llu workgroups", kernels[id].name,
                                 (unsigned long long)x, (unsigned long long)y, (unsigned long long)z));
    return;
  }
  deltaic_status status = kernel_get(vulkan_device(c->backend), &kernels[id], spec, kernel_specs[id], &kernel);
  if (status)
    commands_fail(commands, status);
  else
    commands_dispatch(commands, kernel, bindings, push, (uint32_t[3]){(uint32_t)x, (uint32_t)y, (uint32_t)z},
                      operations);
}

// ---------------------------------------------------------------- short ops

void vulkan_mark(struct recorder *c, const struct mark *m) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const struct binding bindings[MARK_BINDINGS] = {[MARK_SEEN] = vulkan_bind(m->seen, m->seen),
                                                  [MARK_TOKENS] = vulkan_bind(m->tokens, m->seen),
                                                  [MARK_SEQUENCES] = vulkan_bind(m->sequences, m->seen)};
  const struct mark_args args = {.seen_stride = m->seen.stride};
  uint64_t T = (uint64_t)m->tokens.rows * m->tokens.cols;
  vulkan_dispatch(c, KERNEL_mark, &lanes, bindings, &args, divide_up((uint32_t)T, lanes), 1, m->sequences.rows, T);
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
  vulkan_dispatch(c, kernel_variant(FAMILY_rmsnorm, y.dtype), spec, bindings, &args, rows, 1, 1, 4ull * rows * x.cols);
}

void vulkan_add(struct recorder *c, const struct add *a) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const struct binding bindings[ADD_BINDINGS] = {
      [ADD_Y] = vulkan_bind(a->y, a->y), [ADD_X] = vulkan_bind(a->x, a->y), [ADD_Z] = vulkan_bind(a->z, a->y)};
  const struct add_args args = {
      .cols = a->y.cols, .y_stride = a->y.stride, .x_stride = a->x.stride, .z_stride = a->z.stride};
  vulkan_dispatch(c, KERNEL_add, &lanes, bindings, &args, divide_up(a->y.cols, lanes), a->y.rows, 1,
                  (uint64_t)a->y.rows * a->y.cols);
}

uint32_t vulkan_head_groups(const struct recorder *c, uint32_t heads) {
  return divide_up(heads, divide_up(vulkan_plan(c)->lanes, 32));
}

void vulkan_head_norm(struct recorder *c, const struct head_norm *norm) {
  enum { MOST_HELD = 4 };
  const struct tensor y = norm->y, gate = norm->gate, weight = norm->weight;
  const uint32_t d = norm->d, four = 4 * vulkan_plan(c)->subgroup_width;
  const bool fours = four && d <= MOST_HELD * four && d % 4 == 0 && y.stride % 4 == 0 && gate.stride % 4 == 0;
  const uint64_t numbers = (uint64_t)y.rows * norm->heads * d;
  const struct binding to = vulkan_bind_some(y, y, numbers), by = vulkan_bind(gate, y), with = vulkan_bind(weight, y);
  const struct binding bindings[OUTPUT_NORM_BINDINGS] = {
      [OUTPUT_NORM_O] = to, [OUTPUT_NORM_GATE] = by, [OUTPUT_NORM_WEIGHT] = with};
  const struct output_norm_args args = {.heads = norm->heads,
                                        .Dv = d,
                                        .o_stride = y.stride,
                                        .gate_stride = gate.stride,
                                        .has_gate = gate.buffer != NULL,
                                        .has_norm = weight.buffer != NULL,
                                        .weight_step = weight.cols == d ? 0 : d,
                                        .eps = norm->eps};
  const uint32_t spec[OUTPUT_NORM_SPECS] = {
      [OUTPUT_NORM_SPEC_LANES] = vulkan_plan(c)->lanes, [OUTPUT_NORM_SPEC_FOURS] = fours ? divide_up(d, four) : 0};
  vulkan_dispatch(c, kernel_variant(FAMILY_output_norm, y.dtype), spec, bindings, &args, y.rows,
                  vulkan_head_groups(c, norm->heads), 1, 8 * numbers);
}

// The kernel has no use for the scratch: it computes a penalised logit again rather than storing it.
void vulkan_sample(struct recorder *c, const struct sample *s) {
  const struct device_caps *caps = &vulkan_device(c->backend)->caps;
  uint32_t lanes = 4 * vulkan_plan(c)->lanes; // one workgroup reads a whole vocabulary, some twenty times
  while (lanes > caps->max_invocations || lanes > caps->max_workgroup[0] || 24 * lanes > caps->shared_bytes) lanes /= 2;
  const struct binding bindings[SAMPLE_BINDINGS] = {[SAMPLE_TOKENS] = vulkan_bind(s->tokens, s->tokens),
                                                    [SAMPLE_SEQUENCES] = vulkan_bind(s->sequences, s->tokens),
                                                    [SAMPLE_SEEN] = vulkan_bind(s->seen, s->tokens),
                                                    [SAMPLE_LOGITS] = vulkan_bind(s->logits, s->tokens),
                                                    [SAMPLE_SAMPLING] = vulkan_bind(s->sampling, s->tokens)};
  const struct sample_args args = {
      .V = s->logits.cols, .logits_stride = s->logits.stride, .seen_stride = s->seen.stride};
  vulkan_dispatch(c, KERNEL_sample, &lanes, bindings, &args, s->sequences.rows, 1, 1,
                  4ull * s->sequences.rows * s->logits.cols);
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
  vulkan_dispatch(c, KERNEL_copy, spec, bindings, &args, x < MAX_GROUPS ? x : MAX_GROUPS,
                  y < MAX_GROUPS ? y : MAX_GROUPS, 1, (uint64_t)to.rows * to.cols);
}

void vulkan_scatter(struct recorder *c, const struct scatter *s) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const struct scatter_args args = {.cols = s->from.cols, .to_stride = s->to.stride, .from_stride = s->from.stride};
  const struct binding bindings[SCATTER_BINDINGS] = {[SCATTER_TO] = vulkan_bind(s->to, s->to),
                                                     [SCATTER_FROM] = vulkan_bind(s->from, s->from),
                                                     [SCATTER_SEQUENCES] = vulkan_bind(s->sequences, s->to)};
  vulkan_dispatch(c, KERNEL_scatter, &lanes, bindings, &args, divide_up(s->from.cols, lanes), s->sequences.rows, 1,
                  (uint64_t)s->sequences.rows * s->from.cols);
}

void vulkan_score(struct recorder *c, const struct score *s) {
  const uint32_t lanes = vulkan_plan(c)->lanes;
  const struct score_args args = {.V = s->logits.cols, .logits_stride = s->logits.stride, .first = s->first};
  const struct binding bindings[SCORE_BINDINGS] = {[SCORE_SCORES] = vulkan_bind(s->scores, s->scores),
                                                   [SCORE_LOGITS] = vulkan_bind(s->logits, s->logits),
                                                   [SCORE_TARGETS] = vulkan_bind(s->targets, s->targets)};
  vulkan_dispatch(c, KERNEL_score, &lanes, bindings, &args, s->logits.rows, 1, 1,
                  6ull * s->logits.rows * s->logits.cols);
}

// ---------------------------------------------------------------- the backend

static uint64_t vulkan_free_bytes(const struct backend *b) {
  return device_free_bytes(vulkan_device(b)->physical, &vulkan_device(b)->caps);
}

static void vulkan_backend_close(struct backend *b) {
  if (!b) return;
  device_close(vulkan_device(b));
  free(b);
}

static const struct backend_functions vulkan_functions = {
    .name = "vulkan",
    .close = vulkan_backend_close,
    .free_bytes = vulkan_free_bytes,
    .buffer_create = vulkan_buffer_create,
    .buffer_free = vulkan_buffer_free,
    .buffer_write = vulkan_buffer_write,
    .buffer_write_by = vulkan_buffer_write_by,
    .buffer_read = vulkan_buffer_read,
    .buffer_zero = vulkan_buffer_zero,
    .recorder_create = vulkan_recorder_create,
    .recorder_free = vulkan_recorder_free,
    .recorder_begin = vulkan_recorder_begin,
    .recorder_list = vulkan_lower,
    .recorder_run = vulkan_recorder_run,
    .recorder_counters = vulkan_recorder_counters,
    .recorder_profile = vulkan_recorder_profile,
    .recorder_busy = vulkan_recorder_busy,
    .recorder_times = vulkan_recorder_times,
    .list_bytes = vulkan_list_bytes,
};

deltaic_status backend_open_vulkan(struct device *device, struct backend **out) {
  *out = NULL;
  struct vulkan_backend *b = calloc(1, sizeof *b);
  if (!b) {
    device_close(device);
    return fail_memory("the Vulkan backend", sizeof *b);
  }
  b->device = device;
  plan_products_make(&device->caps, &device->plan, &b->products);
  plan_rules_make(&device->caps, &device->plan, &b->rules);
  const bool splits = kernel_built(KERNEL_matmul_matrix_x32_f16);
  b->base = (struct backend){.functions = &vulkan_functions,
                             .max_buffer_bytes = device->plan.block_bytes,
                             .max_binding_bytes = device->plan.binding_bytes,
                             .parts_bytes = splits ? plan_matmul_parts_bytes(&b->products) : 0,
                             .batch = b->products.batch,
                             .replays = true};
  *out = &b->base;
  return DELTAIC_OK;
}
