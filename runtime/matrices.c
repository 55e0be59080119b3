// matrices: queries and enables coopmats. A build with Vulkan headers before 1.3.255, which lack them, finds none.
#include "matrices.h"

#include <stdlib.h>

#ifdef VK_KHR_cooperative_matrix

static void record_shapes(VkInstance instance, VkPhysicalDevice physical, struct device_caps *caps) {
  PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR get =
      (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)vkGetInstanceProcAddr(
          instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
  uint32_t count = 0;
  if (!get || get(physical, &count, NULL) != VK_SUCCESS || !count) return;
  VkCooperativeMatrixPropertiesKHR *all = calloc(count, sizeof *all);
  if (!all) return; // the device then works without coopmats
  for (uint32_t i = 0; i < count; i++) all[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
  if (get(physical, &count, all) < VK_SUCCESS) count = 0;
  for (uint32_t i = 0; i < count && caps->matrix_shapes < CAPS_MATRIX_SHAPES; i++) {
    const VkCooperativeMatrixPropertiesKHR *p = &all[i];
    if (p->AType != VK_COMPONENT_TYPE_FLOAT16_KHR || p->BType != VK_COMPONENT_TYPE_FLOAT16_KHR ||
        p->CType != VK_COMPONENT_TYPE_FLOAT32_KHR || p->ResultType != VK_COMPONENT_TYPE_FLOAT32_KHR ||
        p->scope != VK_SCOPE_SUBGROUP_KHR || p->MSize > 64 || p->NSize > 64 || p->KSize > 64)
      continue;
    caps->matrix_shape[caps->matrix_shapes].m = (uint8_t)p->MSize;
    caps->matrix_shape[caps->matrix_shapes].n = (uint8_t)p->NSize;
    caps->matrix_shape[caps->matrix_shapes++].k = (uint8_t)p->KSize;
  }
  free(all);
}

void matrices_record(VkInstance instance, VkPhysicalDevice physical, bool (*offers)(const void *user, const char *name),
                     const void *user, struct device_caps *caps) {
  // Without the extension, a driver may crash at the query of shapes or still list some.
  if (caps->api_version < VK_API_VERSION_1_3 || !offers(user, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME)) return;
  struct matrix_features f = {
      .memory_model = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES, .pNext = &f.f16},
      .f16 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES, .pNext = &f.storage},
      .storage = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES, .pNext = &f.maintenance},
      .maintenance = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES, .pNext = &f.matrices},
      .matrices = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR}};
#ifdef VK_NV_cooperative_matrix2
  f.conversions.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV;
  if (offers(user, VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME)) f.matrices.pNext = &f.conversions;
#endif
  VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                        .pNext = &f.memory_model};
  vkGetPhysicalDeviceFeatures2(physical, &features);
  // With the memory model, atomics of device scope (in other kernels) need vulkanMemoryModelDeviceScope.
  if (!f.matrices.cooperativeMatrix || !f.memory_model.vulkanMemoryModel ||
      !f.memory_model.vulkanMemoryModelDeviceScope || !f.f16.shaderFloat16 || !f.storage.storageBuffer16BitAccess ||
      !f.maintenance.maintenance4)
    return;
  record_shapes(instance, physical, caps);
#ifdef VK_NV_cooperative_matrix2
  caps->matrix_conversions = caps->matrix_shapes && f.conversions.cooperativeMatrixConversions;
#endif
}

const void *matrices_enable(const struct device_caps *caps, struct matrix_features *f, const void *next,
                            const char **extensions, uint32_t *count) {
  if (!caps->matrix_shapes) return next;
  *f =
      (struct matrix_features){.memory_model = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES,
                                                .pNext = &f->f16,
                                                .vulkanMemoryModel = VK_TRUE,
                                                .vulkanMemoryModelDeviceScope = VK_TRUE},
                               .f16 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES,
                                       .pNext = &f->storage,
                                       .shaderFloat16 = VK_TRUE},
                               .storage = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES,
                                           .pNext = &f->maintenance,
                                           .storageBuffer16BitAccess = VK_TRUE},
                               .maintenance = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES,
                                               .pNext = &f->matrices,
                                               .maintenance4 = VK_TRUE},
                               .matrices = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
                                            .pNext = (void *)next,
                                            .cooperativeMatrix = VK_TRUE}};
  extensions[(*count)++] = VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
#ifdef VK_NV_cooperative_matrix2
  if (caps->matrix_conversions) {
    f->conversions = (VkPhysicalDeviceCooperativeMatrix2FeaturesNV){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV,
        .pNext = (void *)next,
        .cooperativeMatrixConversions = VK_TRUE};
    f->matrices.pNext = &f->conversions;
    extensions[(*count)++] = VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME;
  }
#endif
  return &f->memory_model;
}

#else

void matrices_record(VkInstance instance, VkPhysicalDevice physical, bool (*offers)(const void *user, const char *name),
                     const void *user, struct device_caps *caps) {
  (void)instance, (void)physical;
  caps->matrix_unknown = offers(user, "VK_KHR_cooperative_matrix");
}

const void *matrices_enable(const struct device_caps *caps, struct matrix_features *features, const void *next,
                            const char **extensions, uint32_t *count) {
  (void)caps, (void)features, (void)extensions, (void)count;
  return next;
}

#endif
