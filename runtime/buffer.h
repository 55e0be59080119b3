// buffer.h: memory that kernels access: a VkBuffer with its own allocation or, for the CPU backend, plain memory.
#ifndef BUFFER_H
#define BUFFER_H
#include "device.h"

enum memory_kind {
  MEMORY_DEVICE, // weights, state, scratch
  MEMORY_SHARED  // small data passed between host and kernels: always mapped and coherent
};

struct buffer {
  uint64_t bytes;
  enum memory_kind kind;
  void *mapped; // NULL when the host cannot map it
  VkBuffer vk;  // VK_NULL_HANDLE on the CPU
  VkDeviceMemory memory;
};

// Contents are undefined. A failure names `what` ("weights", "state of layer 3") and the size.
deltaic_status buffer_create(struct device *device, enum memory_kind kind, uint64_t bytes, const char *what,
                             struct buffer *out);
void buffer_free(struct device *device, struct buffer *buffer); // accepts a zeroed buffer; leaves it zeroed

// Blocking transfers, through staging memory where the buffer is not mapped. No kernel that uses the range may run.
deltaic_status buffer_write(struct device *device, struct buffer *buffer, uint64_t offset, const void *data,
                            uint64_t bytes);
// Writes data that `fill` produces in successive calls: each writes bytes first ... first + n - 1, in whole units of
// `unit` bytes. `to` may be uncached memory, which is very slow to read. The first failure of `fill` ends the transfer.
typedef deltaic_status (*buffer_fill)(void *context, uint64_t first, uint64_t n, void *to);
deltaic_status buffer_write_by(struct device *device, struct buffer *buffer, uint64_t offset, uint64_t bytes,
                               uint64_t unit, buffer_fill fill, void *context);
deltaic_status buffer_read(struct device *device, struct buffer *buffer, uint64_t offset, void *data, uint64_t bytes);
// Reads several ranges: the device is asked for many of them at once.
struct buffer_part {
  struct buffer *buffer;
  uint64_t offset, bytes;
  void *data;
};
deltaic_status buffer_read_parts(struct device *device, const struct buffer_part *parts, size_t n);
deltaic_status buffer_zero(struct device *device, struct buffer *buffer, uint64_t offset, uint64_t bytes);

deltaic_status transfer_create(struct device *device); // called by device_open
void transfer_free(struct device *device);             // after the queue is idle
#endif
