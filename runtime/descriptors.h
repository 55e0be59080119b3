// descriptors.h: the descriptor sets of a command buffer, one for each dispatch, from pools that are added as they
// fill.
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H
#include "commands.h"

struct set_pool {
  VkDescriptorPool vk;
  uint32_t sets, buffers; // left
};

struct descriptors {
  struct set_pool *pools;
  size_t count, capacity, now;
};

// Records that the kernel's next dispatch is to see these buffers.
deltaic_status descriptors_bind(struct descriptors *descriptors, struct device *device, VkCommandBuffer cmd,
                                const struct kernel *kernel, const struct binding *bindings);
void descriptors_reset(struct descriptors *descriptors, struct device *device); // before cmd is recorded anew
void descriptors_free(struct descriptors *descriptors, struct device *device);
#endif
