// descriptors: allocates and writes the descriptor sets of a command buffer.
#include "descriptors.h"

#include "list.h"

#include <stdlib.h>

enum { POOL_SETS = 128, POOL_BUFFERS = POOL_SETS * 8 };

static const char doing[] = "descriptor sets were allocated";

static deltaic_status add_pool(struct descriptors *d, struct device *device) {
  VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, POOL_BUFFERS};
  VkDescriptorPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                     .maxSets = POOL_SETS,
                                     .poolSizeCount = 1,
                                     .pPoolSizes = &size};
  struct set_pool pool = {.sets = POOL_SETS, .buffers = POOL_BUFFERS};
  deltaic_status status = list_room(&d->pools, d->count, &d->capacity, sizeof *d->pools, "a recording");
  if (status) return status;
  VkResult result = device->vk.vkCreateDescriptorPool(device->handle, &info, NULL, &pool.vk);
  if (result) return device_fail(device, result, doing);
  d->pools[d->count++] = pool;
  return DELTAIC_OK;
}

// Sets `now` to a pool with room for one set of n buffers.
static deltaic_status find_pool(struct descriptors *d, struct device *device, uint32_t n) {
  for (; d->now < d->count; d->now++)
    if (d->pools[d->now].sets && d->pools[d->now].buffers >= n) return DELTAIC_OK;
  return add_pool(d, device);
}

deltaic_status descriptors_bind(struct descriptors *d, struct device *device, VkCommandBuffer cmd,
                                const struct kernel *kernel, const struct binding *bindings) {
  const uint32_t n = kernel->reflection.bindings;
  deltaic_status status = n ? find_pool(d, device, n) : DELTAIC_OK;
  if (status || !n) return status;
  struct set_pool *pool = &d->pools[d->now];
  VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                      .descriptorPool = pool->vk,
                                      .descriptorSetCount = 1,
                                      .pSetLayouts = &kernel->set_layout};
  VkDescriptorSet set;
  VkResult result = device->vk.vkAllocateDescriptorSets(device->handle, &info, &set);
  if (result) return device_fail(device, result, doing);
  pool->sets--;
  pool->buffers -= n;
  VkDescriptorBufferInfo buffer[REFLECT_BINDINGS];
  VkWriteDescriptorSet write[REFLECT_BINDINGS];
  for (uint32_t i = 0; i < n; i++) {
    buffer[i] = (VkDescriptorBufferInfo){bindings[i].buffer->vk, bindings[i].offset, bindings[i].bytes};
    write[i] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                      .dstSet = set,
                                      .dstBinding = i,
                                      .descriptorCount = 1,
                                      .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                      .pBufferInfo = &buffer[i]};
  }
  device->vk.vkUpdateDescriptorSets(device->handle, n, write, 0, NULL);
  device->vk.vkCmdBindDescriptorSets(cmd, VK_PIPELINE_BIND_POINT_COMPUTE, kernel->layout, 0, 1, &set, 0, NULL);
  return DELTAIC_OK;
}

void descriptors_reset(struct descriptors *d, struct device *device) {
  for (size_t i = 0; i < d->count; i++) {
    device->vk.vkResetDescriptorPool(device->handle, d->pools[i].vk, 0);
    d->pools[i].sets = POOL_SETS;
    d->pools[i].buffers = POOL_BUFFERS;
  }
  d->now = 0;
}

void descriptors_free(struct descriptors *d, struct device *device) {
  for (size_t i = 0; i < d->count && !atomic_load(&device->silent); i++)
    device->vk.vkDestroyDescriptorPool(device->handle, d->pools[i].vk, NULL);
  free(d->pools);
}
