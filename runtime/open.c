// open: creates the VkDevice with the features that its plan uses, then its transfers and pipeline store.
#include "open.h"

#include "buffer.h"
#include "caps.h"
#include "matrices.h"
#include "pipeline.h"

#include <stdlib.h>

#define PORTABILITY_SUBSET "VK_KHR_portability_subset" // its header is among the beta ones

static deltaic_status create_device(struct device *device) {
  const struct device_caps *caps = &device->caps;
  struct extensions extensions;
  deltaic_status status = device_extensions(device->physical, &extensions);
  if (status) return status;
  const char *enabled[5 + MATRIX_EXTENSIONS];
  const bool background = device->plan.background;
  float priority = background ? 0 : 1;
  VkDeviceQueueGlobalPriorityCreateInfoKHR low = {.sType =
                                                      VK_STRUCTURE_TYPE_DEVICE_QUEUE_GLOBAL_PRIORITY_CREATE_INFO_KHR,
                                                  .globalPriority = VK_QUEUE_GLOBAL_PRIORITY_LOW_KHR};
  VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                   .queueFamilyIndex = device->queue_family,
                                   .queueCount = 1,
                                   .pQueuePriorities = &priority};
  VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                             .queueCreateInfoCount = 1,
                             .pQueueCreateInfos = &queue,
                             .ppEnabledExtensionNames = enabled};
  VkPhysicalDeviceSubgroupSizeControlFeatures control = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
      .subgroupSizeControl = caps->subgroup_size_control,
      .computeFullSubgroups = caps->full_subgroups};
  if (caps->subgroup_size_control || caps->full_subgroups) {
    info.pNext = &control;
    uint32_t instance_version = device->instance->api_version;
    if (instance_version < VK_API_VERSION_1_3 || caps->api_version < VK_API_VERSION_1_3)
      enabled[info.enabledExtensionCount++] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
  }
  VkPhysicalDevicePipelineRobustnessFeaturesEXT robustness = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_ROBUSTNESS_FEATURES_EXT,
      .pNext = (void *)info.pNext,
      .pipelineRobustness = true};
  if (caps->unchecked) {
    info.pNext = &robustness;
    enabled[info.enabledExtensionCount++] = VK_EXT_PIPELINE_ROBUSTNESS_EXTENSION_NAME;
  }
  VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES,
      .pNext = (void *)info.pNext,
      .shaderIntegerDotProduct = true};
  if (caps->integer_dot) {
    info.pNext = &dot;
    if (device->instance->api_version < VK_API_VERSION_1_3 || caps->api_version < VK_API_VERSION_1_3)
      enabled[info.enabledExtensionCount++] = VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME;
  }
  struct matrix_features matrices;
  info.pNext = matrices_enable(caps, &matrices, info.pNext, enabled, &info.enabledExtensionCount);
  if (background && caps->global_priority) {
    queue.pNext = &low;
    enabled[info.enabledExtensionCount++] = VK_KHR_GLOBAL_PRIORITY_EXTENSION_NAME;
  }
  if (extensions_have(&extensions, PORTABILITY_SUBSET)) enabled[info.enabledExtensionCount++] = PORTABILITY_SUBSET;
  VkResult result = vkCreateDevice(device->physical, &info, NULL, &device->handle);
  if (result == VK_ERROR_NOT_PERMITTED_KHR || (result == VK_ERROR_INITIALIZATION_FAILED && queue.pNext)) {
    queue.pNext = NULL; // the driver does not grant the low priority
    result = vkCreateDevice(device->physical, &info, NULL, &device->handle);
  }
  free(extensions.all);
  if (result == VK_SUCCESS) return DELTAIC_OK;
  device->handle = NULL;
  return device_fail(device, result, "opening the device");
}

deltaic_status device_open(struct instance *instance, VkPhysicalDevice physical, const struct device_caps *caps,
                           const struct plan *plan, const char *cache_dir, struct device **out) {
  *out = NULL;
  if (!plan->usable) return fail(DELTAIC_UNSUPPORTED, "%s cannot be used: %s", caps->name, plan->reason);
  struct device *device = calloc(1, sizeof *device);
  if (!device) return fail_memory("the device", sizeof *device);
  device->instance = instance;
  device->physical = physical;
  device->caps = *caps;
  device->plan = *plan;
  pthread_mutex_init(&device->queue_lock, NULL);
  uint32_t timestamp_bits;
  device->queue_family = compute_family(physical, &timestamp_bits);
  deltaic_status status = DELTAIC_OK;
  if (device->queue_family == NO_FAMILY) status = fail(DELTAIC_UNSUPPORTED, "%s has no compute queue", caps->name);
  if (!status) status = create_device(device);
  if (!status) {
    volkLoadDeviceTable(&device->vk, device->handle);
    device->vk.vkGetDeviceQueue(device->handle, device->queue_family, 0, &device->queue);
    status = transfer_create(device);
  }
  if (!status) status = pipelines_create(device, cache_dir);
  if (status)
    device_close(device);
  else
    *out = device;
  return status;
}

void device_close(struct device *device) {
  if (!device) return;
  if (device->handle) {
    device_idle(device);
    pipelines_free(device);
    transfer_free(device);
    if (atomic_load(&device->silent))
      atomic_store(&device->instance->abandoned, true);
    else
      device->vk.vkDestroyDevice(device->handle, NULL);
  }
  pthread_mutex_destroy(&device->queue_lock);
  free(device);
}
