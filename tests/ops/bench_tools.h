// bench_tools.h: what the benches of kernels share: a device's backend, buffers of numbers, and views of them.
#ifndef BENCH_TOOLS_H
#define BENCH_TOOLS_H
#include "vulkan_backend.h"
#include "vulkan_devices.h"

static struct backend *backend;
static struct recorder *recorder;
static struct oplist list; // what it records is of

static inline void check(deltaic_status status) {
  if (!status) return;
  fprintf(stderr, "%s\n", deltaic_last_error());
  exit(1);
}

static inline void bench_open(struct instance *instance, VkPhysicalDevice handle, const struct device_caps *caps,
                              const struct plan *plan) {
  struct device *device;
  check(device_open(instance, handle, caps, plan, NULL, &device));
  check(backend_open_vulkan(device, &backend));
  check(backend->functions->recorder_create(backend, &recorder));
  ((struct vulkan_recorder *)recorder)->list = &list;
}

static inline void bench_close(void) {
  recorder->functions->recorder_free(recorder);
  backend->functions->close(backend);
  oplist_free(&list);
}

// Of numbers of any bits, bf16 or f32 between about 0.01 and 0.03, of both signs.
static inline struct buffer bench_buffer(uint64_t bytes, const char *what) {
  enum { BLOCK = 1 << 22 };
  struct buffer buffer;
  uint32_t *block = malloc(BLOCK), state = 1;
  check(backend->functions->buffer_create(backend, MEMORY_DEVICE, bytes, what, &buffer));
  for (uint32_t i = 0; i < BLOCK / 4; i++) {
    state = state * 1664525u + 1013904223u;
    block[i] = 0x3c003c00 | (state >> 8 & 0x00ff00ff) | (state & 0x80008000);
  }
  for (uint64_t at = 0; at < bytes; at += BLOCK)
    check(backend->functions->buffer_write(backend, &buffer, at, block, bytes - at < BLOCK ? bytes - at : BLOCK));
  free(block);
  return buffer;
}

// Behind *offset of the buffer, which moves behind it.
static inline struct tensor bench_view(struct buffer *buffer, enum dtype dtype, uint64_t *offset, uint32_t rows,
                                       uint32_t cols) {
  struct tensor t = {.dtype = dtype, .rows = rows, .cols = cols, .stride = cols, .buffer = buffer, .offset = *offset};
  *offset += round_up(tensor_bytes(&t), TENSOR_ALIGN);
  if (*offset > buffer->bytes) exit(fprintf(stderr, "too little room\n"));
  return t;
}
#endif
