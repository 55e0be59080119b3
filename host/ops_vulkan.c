// ops_vulkan: the Vulkan backend: every op becomes one or two dispatches. Here: memory and recording, which runtime/
// does, and the ops that treat tokens alone; ops_vulkan_linear.c has products with weights, ops_vulkan_mix.c and so on
// the others.
#include "ops_vulkan.h"

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
  r->base = (struct recorder){.backend = b, .ops = b->ops};
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
                          .touched = (uint64_t)t.rows * t.cols * dtype_bytes(t.dtype)};
}

struct binding vulkan_bind_some(struct tensor t, struct tensor or, uint64_t numbers) {
  struct binding b = vulkan_bind(t, or);
  b.touched = numbers * dtype_bytes(t.dtype);
  return b;
}

struct binding vulkan_bind_sums(struct tensor y, bool add) {
  struct binding b = vulkan_bind(y, y);
  b.overwritten = !add;
  return b;
}

struct binding vulkan_bind_weights(struct tensor w) {
  return (struct binding){
      .buffer = w.buffer, .offset = w.offset, .bytes = (uint64_t)w.rows * w.stride * dtype_bytes(w.dtype)};
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

static void vulkan_mark(struct recorder *c, struct tensor seen, struct tensor tokens, struct tensor sequences) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const struct binding bindings[MARK_BINDINGS] = {[MARK_SEEN] = vulkan_bind(seen, seen),
                                                  [MARK_TOKENS] = vulkan_bind(tokens, seen),
                                                  [MARK_SEQUENCES] = vulkan_bind(sequences, seen)};
  const struct mark_args args = {.seen_stride = seen.stride};
  uint64_t T = (uint64_t)tokens.rows * tokens.cols;
  vulkan_dispatch(c, KERNEL_mark, &lanes, bindings, &args, divide_up((uint32_t)T, lanes), 1, sequences.rows, T);
}

static void norm_rows(struct recorder *c, struct tensor y, struct tensor x, struct tensor weight, struct tensor last,
                      float eps, struct tensor rms) {
  enum { MOST_HELD = 8 };
  const uint32_t lanes = vulkan_plan(c)->lanes, held = divide_up(x.cols / 4, lanes);
  const bool fours = x.cols % 4 == 0 && x.stride % 4 == 0 && y.stride % 4 == 0 && held <= MOST_HELD;
  const uint32_t spec[RMSNORM_SPECS] = {[RMSNORM_SPEC_LANES] = lanes, [RMSNORM_SPEC_VECTORS] = fours ? held : 0};
  const struct binding to = vulkan_bind(y, x), from = vulkan_bind(x, x), by = vulkan_bind(weight, x);
  const struct binding bindings[RMSNORM_BINDINGS] = {[RMSNORM_Y] = to,
                                                     [RMSNORM_X] = from,
                                                     [RMSNORM_WEIGHT] = by,
                                                     [RMSNORM_SEQUENCES] = vulkan_bind(last, x),
                                                     [RMSNORM_RMS] = vulkan_bind(rms, y)};
  const struct rmsnorm_args args = {.D = x.cols,
                                    .y_stride = y.stride,
                                    .x_stride = x.stride,
                                    .last = last.buffer != NULL,
                                    .keep = rms.buffer != NULL,
                                    .eps = eps};
  uint32_t rows = last.buffer ? last.rows : x.rows;
  vulkan_dispatch(c, KERNEL_rmsnorm_f32 + y.dtype, spec, bindings, &args, rows, 1, 1, 4ull * rows * x.cols);
}

static void vulkan_rmsnorm(struct recorder *c, struct tensor y, struct tensor x, struct tensor weight,
                           struct tensor last, float eps) {
  norm_rows(c, y, x, weight, last, eps, (struct tensor){0});
}

void vulkan_norm_and_rms(struct recorder *c, struct tensor y, struct tensor rms, struct tensor x, struct tensor weight,
                         float eps) {
  norm_rows(c, y, x, weight, (struct tensor){0}, eps, rms);
}

uint32_t vulkan_head_groups(const struct recorder *c, uint32_t heads) {
  return divide_up(heads, divide_up(vulkan_plan(c)->lanes, 32));
}

void vulkan_output_norm(struct recorder *c, struct tensor o, struct tensor gate, struct tensor weight, uint32_t heads,
                        float eps) {
  enum { MOST_HELD = 4 };
  const uint32_t Dv = o.cols / heads, four = 4 * vulkan_plan(c)->subgroup_width;
  const bool fours = four && Dv <= MOST_HELD * four && Dv % 4 == 0 && o.stride % 4 == 0 && gate.stride % 4 == 0;
  const struct binding to = vulkan_bind(o, o), by = vulkan_bind(gate, o), with = vulkan_bind(weight, o);
  const struct binding bindings[OUTPUT_NORM_BINDINGS] = {
      [OUTPUT_NORM_O] = to, [OUTPUT_NORM_GATE] = by, [OUTPUT_NORM_WEIGHT] = with};
  const struct output_norm_args args = {.heads = heads,
                                        .Dv = Dv,
                                        .o_stride = o.stride,
                                        .gate_stride = gate.stride,
                                        .has_gate = gate.buffer != NULL,
                                        .has_norm = weight.buffer != NULL,
                                        .weight_step = weight.cols == Dv ? 0 : Dv,
                                        .eps = eps};
  const uint32_t spec[OUTPUT_NORM_SPECS] = {
      [OUTPUT_NORM_SPEC_LANES] = vulkan_plan(c)->lanes, [OUTPUT_NORM_SPEC_FOURS] = fours ? divide_up(Dv, four) : 0};
  vulkan_dispatch(c, KERNEL_output_norm_f32 + o.dtype, spec, bindings, &args, o.rows, vulkan_head_groups(c, heads), 1,
                  8ull * o.rows * o.cols);
}

static void vulkan_sample(struct recorder *c, struct tensor tokens, struct tensor sequences, struct tensor seen,
                          struct tensor logits, struct tensor sampling, struct tensor scratch) {
  (void)scratch; // the kernel computes a penalised logit again rather than storing it
  const struct device_caps *caps = &vulkan_device(c->backend)->caps;
  uint32_t lanes = 4 * vulkan_plan(c)->lanes; // one workgroup reads a whole vocabulary, some twenty times
  while (lanes > caps->max_invocations || lanes > caps->max_workgroup[0] || 24 * lanes > caps->shared_bytes) lanes /= 2;
  const struct binding bindings[SAMPLE_BINDINGS] = {[SAMPLE_TOKENS] = vulkan_bind(tokens, tokens),
                                                    [SAMPLE_SEQUENCES] = vulkan_bind(sequences, tokens),
                                                    [SAMPLE_SEEN] = vulkan_bind(seen, tokens),
                                                    [SAMPLE_LOGITS] = vulkan_bind(logits, tokens),
                                                    [SAMPLE_SAMPLING] = vulkan_bind(sampling, tokens)};
  const struct sample_args args = {.V = logits.cols, .logits_stride = logits.stride, .seen_stride = seen.stride};
  vulkan_dispatch(c, KERNEL_sample, &lanes, bindings, &args, sequences.rows, 1, 1, 4ull * sequences.rows * logits.cols);
}

static void vulkan_copy(struct recorder *c, struct tensor to, struct tensor from) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
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

static void vulkan_scatter(struct recorder *c, struct tensor to, struct tensor from, struct tensor sequences) {
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const struct scatter_args args = {.cols = from.cols, .to_stride = to.stride, .from_stride = from.stride};
  const struct binding bindings[SCATTER_BINDINGS] = {[SCATTER_TO] = vulkan_bind(to, to),
                                                     [SCATTER_FROM] = vulkan_bind(from, from),
                                                     [SCATTER_SEQUENCES] = vulkan_bind(sequences, to)};
  vulkan_dispatch(c, KERNEL_scatter, &lanes, bindings, &args, divide_up(from.cols, lanes), sequences.rows, 1,
                  (uint64_t)sequences.rows * from.cols);
}

static void vulkan_score(struct recorder *c, struct tensor scores, struct tensor logits, struct tensor targets,
                         uint32_t first) {
  const uint32_t lanes = vulkan_plan(c)->lanes;
  const struct score_args args = {.V = logits.cols, .logits_stride = logits.stride, .first = first};
  const struct binding bindings[SCORE_BINDINGS] = {[SCORE_SCORES] = vulkan_bind(scores, scores),
                                                   [SCORE_LOGITS] = vulkan_bind(logits, logits),
                                                   [SCORE_TARGETS] = vulkan_bind(targets, targets)};
  vulkan_dispatch(c, KERNEL_score, &lanes, bindings, &args, logits.rows, 1, 1, 6ull * logits.rows * logits.cols);
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

static const struct ops vulkan_ops = {
    .name = "vulkan",
    .backend_close = vulkan_backend_close,
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
    .recorder_run = vulkan_recorder_run,
    .recorder_counters = vulkan_recorder_counters,
    .recorder_profile = vulkan_recorder_profile,
    .recorder_busy = vulkan_recorder_busy,
    .recorder_times = vulkan_recorder_times,
    .embed = vulkan_embed,
    .mark = vulkan_mark,
    .rmsnorm = vulkan_rmsnorm,
    .input_dtype = vulkan_input_dtype,
    .linear = vulkan_linear,
    .linear_residual = vulkan_linear_residual,
    .linear_conv = vulkan_linear_conv,
    .linear_gated = vulkan_linear_gated,
    .delta_inputs = vulkan_delta_inputs,
    .delta_rule = vulkan_delta_rule,
    .delta_dtype = vulkan_delta_dtype,
    .delta_scratch_bytes = vulkan_delta_scratch_bytes,
    .output_norm = vulkan_output_norm,
    .delta_step = vulkan_delta_step,
    .mamba2_inputs = vulkan_mamba2_inputs,
    .mamba2 = vulkan_mamba2,
    .mamba2_dtype = vulkan_mamba2_dtype,
    .mamba2_scratch_bytes = vulkan_mamba2_scratch_bytes,
    .mamba2_step = vulkan_mamba2_step,
    .gated_norm = vulkan_gated_norm,
    .rope_append = vulkan_rope_append,
    .attention = vulkan_attention,
    .attention_scratch_bytes = vulkan_attention_scratch_bytes,
    .sample = vulkan_sample,
    .copy = vulkan_copy,
    .scatter = vulkan_scatter,
    .score = vulkan_score,
};

deltaic_status backend_open_vulkan(struct device *device, struct backend **out) {
  *out = NULL;
  struct vulkan_backend *b = calloc(1, sizeof *b);
  if (!b) {
    device_close(device);
    return fail_memory("the Vulkan backend", sizeof *b);
  }
  b->device = device;
  b->base = (struct backend){
      .ops = &vulkan_ops,
      .max_buffer_bytes = device->plan.block_bytes,
      .max_binding_bytes = device->plan.binding_bytes,
      .parts_bytes = kernel_built(KERNEL_matmul_matrix_x32_f16) ? plan_matmul_parts_bytes(&device->plan) : 0,
      .batch = device->plan.batch,
      .replays = true};
  *out = &b->base;
  return DELTAIC_OK;
}
