// descriptors.h: allocates the descriptor sets of a command buffer, one per dispatch, and adds pools as they fill.
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H
#include "buffer.h"
#include "pipeline.h"

struct binding {
  const struct buffer *buffer;
  uint64_t offset, bytes; // offset: a multiple of plan.offset_alignment
  uint64_t touched;       // bytes that the profile counts; 0: all
  bool overwritten;       // the profile counts no read, because this dispatch skips the reads that the module has
};

struct set_pool {
  VkDescriptorPool vk;
  uint32_t sets, buffers; // left
};

struct descriptors {
  struct set_pool *pools;
  size_t count, capacity, now;
};

// Records a bind of these buffers for the kernel's next dispatch.
deltaic_status descriptors_bind(struct descriptors *descriptors, struct device *device, VkCommandBuffer cmd,
                                const struct kernel *kernel, const struct binding *bindings);
void descriptors_reset(struct descriptors *descriptors, struct device *device); // before cmd is recorded anew
void descriptors_free(struct descriptors *descriptors, struct device *device);
#endif
