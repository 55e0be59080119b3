// device: records what devices can do, opens one, submits to its queue and waits.
#include "device.h"

#include "buffer.h"
#include "matrices.h"
#include "pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PORTABILITY_SUBSET "VK_KHR_portability_subset" // its header is among the beta ones

// ---------------------------------------------------------------- capabilities

struct extensions {
  VkExtensionProperties *all;
  uint32_t count;
};

static deltaic_status device_extensions(VkPhysicalDevice physical, struct extensions *out) {
  *out = (struct extensions){0};
  uint32_t count = 0;
  if (vkEnumerateDeviceExtensionProperties(physical, NULL, &count, NULL) != VK_SUCCESS || !count) return DELTAIC_OK;
  out->all = calloc(count, sizeof *out->all);
  if (!out->all) return fail_memory("the list of device extensions", count * sizeof *out->all);
  if (vkEnumerateDeviceExtensionProperties(physical, NULL, &count, out->all) >= VK_SUCCESS) out->count = count;
  return DELTAIC_OK;
}

static bool offers(const void *user, const char *name) {
  const struct extensions *extensions = user;
  for (uint32_t i = 0; i < extensions->count; i++)
    if (!strcmp(extensions->all[i].extensionName, name)) return true;
  return false;
}

enum { MAX_FAMILIES = 32, NO_FAMILY = UINT32_MAX };

// A compute family that does not also draw keeps out of the desktop's way; it must have time stamps to be preferred.
static uint32_t compute_family(VkPhysicalDevice physical, uint32_t *timestamp_bits) {
  VkQueueFamilyProperties family[MAX_FAMILIES];
  uint32_t count = MAX_FAMILIES, found = NO_FAMILY;
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, family);
  for (uint32_t i = 0; i < count; i++) {
    bool draws = family[i].queueFlags & VK_QUEUE_GRAPHICS_BIT;
    if (!(family[i].queueFlags & VK_QUEUE_COMPUTE_BIT) || !family[i].queueCount) continue;
    bool better = found != NO_FAMILY && (family[found].queueFlags & VK_QUEUE_GRAPHICS_BIT) && !draws &&
                  family[i].timestampValidBits;
    if (found == NO_FAMILY || better) found = i;
  }
  *timestamp_bits = found == NO_FAMILY ? 0 : family[found].timestampValidBits;
  return found;
}

static void record_limits(const VkPhysicalDeviceProperties *p, struct device_caps *caps) {
  const VkPhysicalDeviceLimits *limits = &p->limits;
  snprintf(caps->name, sizeof caps->name, "%s", p->deviceName);
  snprintf(caps->driver, sizeof caps->driver, "driver version 0x%x", p->driverVersion);
  caps->vendor_id = p->vendorID;
  caps->device_id = p->deviceID;
  caps->device_type = (uint32_t)p->deviceType;
  caps->api_version = p->apiVersion;
  caps->shared_bytes = limits->maxComputeSharedMemorySize;
  caps->max_invocations = limits->maxComputeWorkGroupInvocations;
  memcpy(caps->max_workgroup, limits->maxComputeWorkGroupSize, sizeof caps->max_workgroup);
  memcpy(caps->max_groups, limits->maxComputeWorkGroupCount, sizeof caps->max_groups);
  caps->push_bytes = limits->maxPushConstantsSize;
  uint32_t stage = limits->maxPerStageDescriptorStorageBuffers, set = limits->maxDescriptorSetStorageBuffers;
  caps->max_storage_buffers = stage < set ? stage : set;
  caps->storage_range = limits->maxStorageBufferRange;
  caps->offset_alignment = (uint32_t)limits->minStorageBufferOffsetAlignment;
  caps->timestamp_period = limits->timestampPeriod;
}

static void record_memory(VkPhysicalDevice physical, struct device_caps *caps) {
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(physical, &memory);
  caps->memory_types = memory.memoryTypeCount;
  caps->memory_heaps = memory.memoryHeapCount;
  for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
    caps->memory_type[i].flags = memory.memoryTypes[i].propertyFlags;
    caps->memory_type[i].heap = memory.memoryTypes[i].heapIndex;
  }
  for (uint32_t i = 0; i < memory.memoryHeapCount; i++) {
    caps->memory_heap[i].bytes = memory.memoryHeaps[i].size;
    caps->memory_heap[i].flags = memory.memoryHeaps[i].flags;
  }
}

#define CHAIN(head, structure) ((structure).pNext = (head).pNext, (head).pNext = &(structure))

// At most one of these extensions is a device's; Intel has none.
static uint32_t count_processors(VkPhysicalDevice physical, const struct extensions *extensions) {
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
  VkPhysicalDeviceShaderCoreProperties2AMD amd = {.sType =
                                                      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD};
  VkPhysicalDeviceShaderCoreBuiltinsPropertiesARM arm = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_BUILTINS_PROPERTIES_ARM};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  if (offers(extensions, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) CHAIN(properties, nvidia);
  if (offers(extensions, VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME)) CHAIN(properties, amd);
  if (offers(extensions, VK_ARM_SHADER_CORE_BUILTINS_EXTENSION_NAME)) CHAIN(properties, arm);
  vkGetPhysicalDeviceProperties2(physical, &properties);
  return nvidia.shaderSMCount + amd.activeComputeUnitCount + arm.shaderCoreCount;
}

// What a 1.1 device tells beyond the limits of 1.0. version: the lesser of the instance's and the device's.
static void record_properties2(VkPhysicalDevice physical, const struct extensions *extensions, uint32_t version,
                               struct device_caps *caps) {
  bool has_driver = version >= VK_API_VERSION_1_2 || offers(extensions, VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME);
  bool has_sizes = version >= VK_API_VERSION_1_3 || offers(extensions, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  bool has_buffer = version >= VK_API_VERSION_1_3 || offers(extensions, VK_KHR_MAINTENANCE_4_EXTENSION_NAME);
  VkPhysicalDeviceSubgroupProperties subgroup = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
  VkPhysicalDeviceMaintenance3Properties allocation = {.sType =
                                                           VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
  VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
  VkPhysicalDeviceDriverProperties driver = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
  VkPhysicalDeviceSubgroupSizeControlProperties sizes = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
  VkPhysicalDeviceMaintenance4Properties buffer = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  CHAIN(properties, subgroup);
  CHAIN(properties, allocation);
  CHAIN(properties, id);
  if (has_driver) CHAIN(properties, driver);
  if (has_sizes) CHAIN(properties, sizes);
  if (has_buffer) CHAIN(properties, buffer);
  vkGetPhysicalDeviceProperties2(physical, &properties);

  caps->processors = count_processors(physical, extensions);
  caps->memory_budget = offers(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  caps->unchecked = // other drivers check nothing that is not asked for
      caps->vendor_id == VENDOR_NVIDIA && offers(extensions, VK_EXT_PIPELINE_ROBUSTNESS_EXTENSION_NAME);
  memcpy(caps->uuid, id.deviceUUID, sizeof caps->uuid);
  memcpy(caps->driver_uuid, id.driverUUID, sizeof caps->driver_uuid);
  if (has_driver) snprintf(caps->driver, sizeof caps->driver, "%.120s %.120s", driver.driverName, driver.driverInfo);
  caps->subgroup_size = caps->subgroup_min = caps->subgroup_max = subgroup.subgroupSize;
  caps->subgroup_arithmetic = (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
                              (subgroup.supportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT);
  caps->subgroup_shuffle = (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
                           (subgroup.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT);
  caps->max_allocation = caps->max_buffer = allocation.maxMemoryAllocationSize;
  if (has_buffer && buffer.maxBufferSize) caps->max_buffer = buffer.maxBufferSize;
  if (!has_sizes) return;

  VkPhysicalDeviceSubgroupSizeControlFeatures control = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
  VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &control};
  vkGetPhysicalDeviceFeatures2(physical, &features);
  caps->full_subgroups = control.computeFullSubgroups;
  caps->max_subgroups = sizes.maxComputeWorkgroupSubgroups;
  caps->subgroup_size_control =
      control.subgroupSizeControl && (sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT);
  if (control.subgroupSizeControl) caps->subgroup_min = sizes.minSubgroupSize;
  if (control.subgroupSizeControl) caps->subgroup_max = sizes.maxSubgroupSize;
}

static deltaic_status record_caps(struct instance *instance, VkPhysicalDevice physical, struct device_caps *caps) {
  memset(caps, 0, sizeof *caps);
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(physical, &properties);
  record_limits(&properties, caps);
  record_memory(physical, caps);
  if (compute_family(physical, &caps->timestamp_bits) == NO_FAMILY) caps->max_groups[0] = 0;
  if (properties.apiVersion < VK_API_VERSION_1_1) return DELTAIC_OK; // the plan refuses it
  struct extensions extensions;
  deltaic_status status = device_extensions(physical, &extensions);
  if (status) return status;
  uint32_t version = instance->api_version < caps->api_version ? instance->api_version : caps->api_version;
  record_properties2(physical, &extensions, version, caps);
  matrices_record(instance->handle, physical, offers, &extensions, caps);
  free(extensions.all);
  return DELTAIC_OK;
}

deltaic_status instance_devices(struct instance *instance, struct device_caps **caps, VkPhysicalDevice **handles,
                                uint32_t *count) {
  *caps = NULL;
  *handles = NULL;
  *count = 0;
  uint32_t n = 0;
  if (!instance->handle || vkEnumeratePhysicalDevices(instance->handle, &n, NULL) != VK_SUCCESS || !n)
    return DELTAIC_OK; // drivers are installed, their hardware is not
  deltaic_status status = DELTAIC_OK;
  VkPhysicalDevice *found = calloc(n, sizeof *found);
  struct device_caps *recorded = calloc(n, sizeof *recorded);
  if (!found || !recorded) {
    status = fail_memory("the list of devices", n * (sizeof *found + sizeof *recorded));
    goto done;
  }
  if (vkEnumeratePhysicalDevices(instance->handle, &n, found) < VK_SUCCESS) n = 0;
  for (uint32_t i = 0; i < n && !status; i++) status = record_caps(instance, found[i], &recorded[i]);
  if (status || !n) goto done;
  *caps = recorded;
  *handles = found;
  *count = n;
  return DELTAIC_OK;
done:
  free(found);
  free(recorded);
  return status;
}

uint64_t device_free_bytes(VkPhysicalDevice physical, const struct device_caps *caps) {
  if (!caps->memory_budget) return 0;
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
                                              .pNext = &budget};
  vkGetPhysicalDeviceMemoryProperties2(physical, &memory);
  uint64_t largest = 0, left = 0;
  for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; i++) {
    const VkMemoryHeap *heap = &memory.memoryProperties.memoryHeaps[i];
    if (!(heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) || heap->size <= largest) continue;
    largest = heap->size;
    left = budget.heapBudget[i] > budget.heapUsage[i] ? budget.heapBudget[i] - budget.heapUsage[i] : 1;
  }
  return left < largest ? left : largest;
}

// ---------------------------------------------------------------- device

static deltaic_status create_device(struct device *device) {
  const struct device_caps *caps = &device->caps;
  struct extensions extensions;
  deltaic_status status = device_extensions(device->physical, &extensions);
  if (status) return status;
  const char *enabled[3 + MATRIX_EXTENSIONS];
  float priority = 1;
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
  struct matrix_features matrices;
  info.pNext = matrices_enable(caps, &matrices, info.pNext, enabled, &info.enabledExtensionCount);
  if (offers(&extensions, PORTABILITY_SUBSET)) enabled[info.enabledExtensionCount++] = PORTABILITY_SUBSET;
  VkResult result = vkCreateDevice(device->physical, &info, NULL, &device->handle);
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

deltaic_status device_fail(struct device *device, VkResult result, const char *what) {
  switch (result) {
  case VK_ERROR_DEVICE_LOST:
    atomic_store(&device->lost, true);
    return fail(DELTAIC_DEVICE_LOST, "%s was lost while %s", device->caps.name, what);
  case VK_ERROR_OUT_OF_HOST_MEMORY:
    return fail(DELTAIC_OUT_OF_MEMORY, "%s: out of main memory while %s", device->caps.name, what);
  case VK_ERROR_OUT_OF_DEVICE_MEMORY:
  case VK_ERROR_OUT_OF_POOL_MEMORY:
  case VK_ERROR_TOO_MANY_OBJECTS:
    return fail(DELTAIC_OUT_OF_MEMORY, "%s: out of memory while %s", device->caps.name, what);
  default: return fail(DELTAIC_INTERNAL, "%s: VkResult %d while %s", device->caps.name, result, what);
  }
}

deltaic_status device_check(const struct device *device) {
  if (!atomic_load(&device->lost)) return DELTAIC_OK;
  return fail(DELTAIC_DEVICE_LOST, "%s was lost; close it and open it again", device->caps.name);
}

// ---------------------------------------------------------------- queue

deltaic_status device_submit(struct device *device, VkCommandBuffer cmd, VkFence fence) {
  deltaic_status status = device_check(device);
  if (status) return status;
  VkResult result = device->vk.vkResetFences(device->handle, 1, &fence);
  if (result) return device_fail(device, result, "work was submitted");
  VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &cmd};
  pthread_mutex_lock(&device->queue_lock);
  result = device->vk.vkQueueSubmit(device->queue, 1, &info, fence);
  pthread_mutex_unlock(&device->queue_lock);
  return result == VK_SUCCESS ? DELTAIC_OK : device_fail(device, result, "work was submitted");
}

void device_idle(struct device *device) {
  if (atomic_load(&device->silent)) return;
  pthread_mutex_lock(&device->queue_lock);
  if (device->queue) device->vk.vkQueueWaitIdle(device->queue);
  pthread_mutex_unlock(&device->queue_lock);
}

uint64_t device_clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void sleep_ns(uint64_t ns) {
  struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
  nanosleep(&t, NULL);
}

// Asking the fence again and again notices its signal about 20 us sooner than sleeping on it. Work that is expected to
// take so long is slept through for three quarters of it and asked for from then on, for a while; what is not expected
// is asked for shortly. Software needs the processor itself.
static VkResult poll_fence(struct device *device, VkFence fence, uint64_t expected_ns) {
  enum { POLL_NS = 50000, WORTH_SLEEPING_NS = 400000, LONGEST_NS = 20000000 };
  VkResult result;
  if (expected_ns > LONGEST_NS) return VK_NOT_READY;
  if (expected_ns > WORTH_SLEEPING_NS) sleep_ns(expected_ns / 4 * 3 - POLL_NS);
  uint64_t until = device_clock_ns() + POLL_NS + expected_ns / 2;
  do result = device->vk.vkGetFenceStatus(device->handle, fence);
  while (result == VK_NOT_READY && device_clock_ns() < until);
  return result;
}

enum { SECOND_NS = 1000000000, NAP_NS = 10000000 };

// Sleeps on the fence for a second. When that fails, for want of memory say, the work goes on all the same: naps, and
// asks. The nanoseconds slept, counted and not read from a clock, so that a process that was stopped does not blame the
// device.
static uint64_t sleep_on_fence(struct device *device, VkFence fence, VkResult *result) {
  if (*result >= VK_SUCCESS) {
    *result = device->vk.vkWaitForFences(device->handle, 1, &fence, VK_TRUE, SECOND_NS);
    return *result == VK_TIMEOUT ? SECOND_NS : 0;
  }
  sleep_ns(NAP_NS);
  *result = device->vk.vkGetFenceStatus(device->handle, fence);
  return NAP_NS;
}

// Until the fence is signalled or the device lost. Other threads' fences are signs of life too: the queue works through
// all in order.
static deltaic_status await_fence(struct device *device, VkFence fence, VkResult *result) {
  uint64_t answers = atomic_load(&device->answers), silent = 0;
  while (*result != VK_SUCCESS && *result != VK_ERROR_DEVICE_LOST) {
    silent += sleep_on_fence(device, fence, result);
    if (*result == VK_SUCCESS) break;
    uint64_t now = atomic_load(&device->answers);
    if (now != answers) silent = 0;
    answers = now;
    if (atomic_load(&device->lost))
      *result = VK_ERROR_DEVICE_LOST; // the fence may never be signalled
    else if (silent >= (uint64_t)device->plan.silent_seconds * SECOND_NS) {
      atomic_store(&device->silent, true);
      atomic_store(&device->lost, true);
      return fail(DELTAIC_DEVICE_LOST, "%s was lost: it has not answered for %u seconds", device->caps.name,
                  device->plan.silent_seconds);
    }
  }
  return DELTAIC_OK;
}

deltaic_status device_wait(struct device *device, VkFence fence, uint64_t expected_ns) {
  bool software = device->caps.device_type == VK_PHYSICAL_DEVICE_TYPE_CPU;
  VkResult result = software ? VK_NOT_READY : poll_fence(device, fence, expected_ns);
  deltaic_status status = await_fence(device, fence, &result);
  if (status) return status;
  if (result != VK_SUCCESS) return device_fail(device, result, "work was waited for");
  atomic_fetch_add(&device->answers, 1);
  return DELTAIC_OK;
}
