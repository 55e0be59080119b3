// vulkan_backend: connects the backend's memory and recorders to runtime/. lower.c runs a list.
#include "vulkan_backend.h"
#include "caps.h"
#include "imagined.h"
#include "matvec_dot.h"
#include "open.h"

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

static deltaic_status vulkan_buffer_read_parts(struct backend *b, const struct buffer_part *parts, size_t n) {
  return buffer_read_parts(vulkan_device(b), parts, n);
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

// ---------------------------------------------------------------- the backend

static uint64_t vulkan_free_bytes(const struct backend *b) {
  return device_free_bytes(vulkan_device(b)->physical, &vulkan_device(b)->caps);
}

static double vulkan_compile_seconds(const struct backend *b) {
  return (double)pipelines_compile_ns(vulkan_device(b)) / 1e9;
}

static void vulkan_backend_close(struct backend *b) {
  if (!b) return;
  device_close(vulkan_device(b));
  free(b);
}

// ---------------------------------------------------------------- a backend that computes nothing

static deltaic_status vulkan_imagined_create(struct backend *b, struct recorder **out) {
  struct vulkan_recorder *r = calloc(1, sizeof *r);
  *out = NULL;
  if (!r) return fail_memory("a recorder", sizeof *r);
  r->base = (struct recorder){.backend = b, .functions = b->functions};
  *out = &r->base;
  return DELTAIC_OK;
}

static void vulkan_imagined_free(struct recorder *c) { free(c); }

static void vulkan_imagined_begin(struct recorder *c, bool replay, const atomic_bool *cancel) {
  (void)c, (void)replay, (void)cancel;
}

static const struct backend_functions vulkan_imagined = {
    IMAGINED_FUNCTIONS,
    .name = "vulkan",
    .free_bytes = vulkan_free_bytes,
    .recorder_create = vulkan_imagined_create,
    .recorder_free = vulkan_imagined_free,
    .recorder_begin = vulkan_imagined_begin,
    .recorder_list = vulkan_lower,
    .list_bytes = vulkan_list_bytes,
};

deltaic_status vulkan_imagine(const struct backend *of, struct backend **out) {
  struct vulkan_backend *b = malloc(sizeof *b);
  *out = NULL;
  if (!b) return fail_memory("the Vulkan backend", sizeof *b);
  *b = *(const struct vulkan_backend *)of;
  b->base.functions = &vulkan_imagined;
  b->base.imagined = true;
  *out = &b->base;
  return DELTAIC_OK;
}

static const struct backend_functions vulkan_functions = {
    .name = "vulkan",
    .close = vulkan_backend_close,
    .free_bytes = vulkan_free_bytes,
    .compile_seconds = vulkan_compile_seconds,
    .buffer_create = vulkan_buffer_create,
    .buffer_free = vulkan_buffer_free,
    .buffer_write = vulkan_buffer_write,
    .buffer_write_by = vulkan_buffer_write_by,
    .buffer_read = vulkan_buffer_read,
    .buffer_read_parts = vulkan_buffer_read_parts,
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
    .compile = vulkan_compile,
    .imagine = vulkan_imagine,
};

void vulkan_backend_plan(struct vulkan_backend *b) {
  const struct device *device = b->device;
  plan_products_make(&device->caps, &device->plan, &b->products);
  b->products.dots &= kernel_built(KERNEL_matvec_dot_blocks) && device->caps.max_storage_buffers >= MATVEC_DOT_BINDINGS;
  plan_rules_make(&device->caps, &device->plan, &b->rules);
  b->base.parts_bytes = kernel_built(KERNEL_matmul_matrix_x32_f16) ? plan_matmul_parts_bytes(&b->products) : 0;
  b->base.batch = b->products.batch;
  b->base.rounds = vulkan_can_round(&b->base);
}

deltaic_status backend_open_vulkan(struct device *device, struct backend **out) {
  *out = NULL;
  struct vulkan_backend *b = calloc(1, sizeof *b);
  if (!b) {
    device_close(device);
    return fail_memory("the Vulkan backend", sizeof *b);
  }
  b->device = device;
  b->base = (struct backend){.functions = &vulkan_functions,
                             .max_buffer_bytes = device->plan.block_bytes,
                             .max_binding_bytes = device->plan.binding_bytes,
                             .tiles = true,
                             .replays = true};
  vulkan_backend_plan(b);
  *out = &b->base;
  return DELTAIC_OK;
}
