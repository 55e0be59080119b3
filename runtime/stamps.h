// stamps.h: records time stamps around every dispatch of a recording or at both ends of a submission, and sums them.
#ifndef STAMPS_H
#define STAMPS_H
#include "device.h"

struct timed { // one dispatch; its time stamps are queries 2 i and 2 i + 1
  const char *name;
  uint64_t bytes, operations;
};

struct stamps { // of one command buffer
  VkQueryPool *pools;
  size_t pool_count, pool_capacity;
  struct timed *timed;
  size_t timed_count, timed_capacity;
};

// Called before and after a dispatch is recorded, to profile the command buffer.
deltaic_status stamps_before(struct stamps *stamps, struct device *device, VkCommandBuffer cmd, struct timed dispatch);
void stamps_after(struct stamps *stamps, struct device *device, VkCommandBuffer cmd);
// Called first and last in a command buffer without profile, to stamp the start and end of its execution.
deltaic_status stamps_begin(struct stamps *stamps, struct device *device, VkCommandBuffer cmd);
void stamps_end(struct stamps *stamps, struct device *device, VkCommandBuffer cmd);

struct stamp_sums {
  deltaic_kernel_time *times; // by name
  size_t count, capacity;
  uint64_t busy_until; // the last submission's end, in ticks
};

// Adds the times of a command buffer that has run. ends: it has a submission's stamps, which count as "submissions".
void stamps_collect(const struct stamps *stamps, struct device *device, bool ends, struct stamp_sums *sums);
void stamps_free(struct stamps *stamps, struct device *device);
#endif
