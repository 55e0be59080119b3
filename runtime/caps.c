// caps: queries each device's capabilities from Vulkan.
#include "caps.h"

#include "matrices.h"
#include "platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

deltaic_status device_extensions(VkPhysicalDevice physical, struct extensions *out) {
  *out = (struct extensions){0};
  uint32_t count = 0;
  if (vkEnumerateDeviceExtensionProperties(physical, NULL, &count, NULL) != VK_SUCCESS || !count) return DELTAIC_OK;
  out->all = calloc(count, sizeof *out->all);
  if (!out->all) return fail_memory("the list of device extensions", count * sizeof *out->all);
  if (vkEnumerateDeviceExtensionProperties(physical, NULL, &count, out->all) >= VK_SUCCESS) out->count = count;
  return DELTAIC_OK;
}

bool extensions_have(const void *user, const char *name) {
  const struct extensions *extensions = user;
  for (uint32_t i = 0; i < extensions->count; i++)
    if (!strcmp(extensions->all[i].extensionName, name)) return true;
  return false;
}

enum { MAX_FAMILIES = 32 };

// Prefers a compute family without graphics, which disturbs the desktop less, if it has time stamps.
uint32_t compute_family(VkPhysicalDevice physical, uint32_t *timestamp_bits) {
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

// A device has at most one of these extensions; Intel has none.
static uint32_t count_processors(VkPhysicalDevice physical, const struct extensions *extensions) {
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
  VkPhysicalDeviceShaderCoreProperties2AMD amd = {.sType =
                                                      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD};
  VkPhysicalDeviceShaderCoreBuiltinsPropertiesARM arm = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_BUILTINS_PROPERTIES_ARM};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  if (extensions_have(extensions, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) CHAIN(properties, nvidia);
  if (extensions_have(extensions, VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME)) CHAIN(properties, amd);
  if (extensions_have(extensions, VK_ARM_SHADER_CORE_BUILTINS_EXTENSION_NAME)) CHAIN(properties, arm);
  vkGetPhysicalDeviceProperties2(physical, &properties);
  return nvidia.shaderSMCount + amd.activeComputeUnitCount + arm.shaderCoreCount;
}

// Records the properties that Vulkan 1.1 added. version: the lesser of the instance's and the device's.
static void record_properties2(VkPhysicalDevice physical, const struct extensions *extensions, uint32_t version,
                               struct device_caps *caps) {
  bool has_driver =
      version >= VK_API_VERSION_1_2 || extensions_have(extensions, VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME);
  bool has_sizes =
      version >= VK_API_VERSION_1_3 || extensions_have(extensions, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  bool has_buffer = version >= VK_API_VERSION_1_3 || extensions_have(extensions, VK_KHR_MAINTENANCE_4_EXTENSION_NAME);
  VkPhysicalDeviceSubgroupProperties subgroup = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
  VkPhysicalDeviceMaintenance3Properties allocation = {.sType =
                                                           VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
  VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
  VkPhysicalDeviceDriverProperties driver = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
  VkPhysicalDeviceSubgroupSizeControlProperties sizes = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
  VkPhysicalDeviceMaintenance4Properties buffer = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
  bool has_pci = extensions_have(extensions, VK_EXT_PCI_BUS_INFO_EXTENSION_NAME);
  VkPhysicalDevicePCIBusInfoPropertiesEXT pci = {.sType =
                                                     VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  CHAIN(properties, subgroup);
  CHAIN(properties, allocation);
  CHAIN(properties, id);
  if (has_driver) CHAIN(properties, driver);
  if (has_sizes) CHAIN(properties, sizes);
  if (has_buffer) CHAIN(properties, buffer);
  if (has_pci) CHAIN(properties, pci);
  vkGetPhysicalDeviceProperties2(physical, &properties);

  caps->processors = count_processors(physical, extensions);
  caps->memory_budget = extensions_have(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  caps->unchecked = // other drivers check nothing that is not asked for
      caps->vendor_id == VENDOR_NVIDIA && extensions_have(extensions, VK_EXT_PIPELINE_ROBUSTNESS_EXTENSION_NAME);
  memcpy(caps->uuid, id.deviceUUID, sizeof caps->uuid);
  memcpy(caps->driver_uuid, id.driverUUID, sizeof caps->driver_uuid);
  if (id.deviceLUIDValid) memcpy(caps->luid, id.deviceLUID, sizeof caps->luid);
  if (has_pci)
    snprintf(caps->pci, sizeof caps->pci, "%04x:%02x:%02x.%x", pci.pciDomain & 0xffff, pci.pciBus & 0xff,
             pci.pciDevice & 0x1f, pci.pciFunction & 7);
  caps->global_priority = extensions_have(extensions, VK_KHR_GLOBAL_PRIORITY_EXTENSION_NAME);
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

static void record_dot(VkPhysicalDevice physical, const struct extensions *extensions, uint32_t version,
                       struct device_caps *caps) {
  if (version < VK_API_VERSION_1_3 && !extensions_have(extensions, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME))
    return;
  VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES};
  VkPhysicalDeviceShaderIntegerDotProductProperties speed = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES};
  VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &dot};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &speed};
  vkGetPhysicalDeviceFeatures2(physical, &features);
  vkGetPhysicalDeviceProperties2(physical, &properties);
  caps->integer_dot = dot.shaderIntegerDotProduct;
  caps->integer_dot_fast = caps->integer_dot && speed.integerDotProduct4x8BitPackedSignedAccelerated;
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
  record_dot(physical, &extensions, version, caps);
  char *without = platform_variable("DELTAIC_NO_MATRICES"); // for measuring what a device without them would do
  if (!without) matrices_record(instance->handle, physical, extensions_have, &extensions, caps);
  free(without);
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
