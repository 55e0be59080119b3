// matrices.h: queries and enables coopmats (cooperative matrices) and the device features that they need.
#ifndef MATRICES_H
#define MATRICES_H
#include "plan.h"
#include <volk.h>

// Fills caps->matrix_...; `offers` returns whether the device has an extension.
void matrices_record(VkInstance instance, VkPhysicalDevice physical, bool (*offers)(const void *user, const char *name),
                     const void *user, struct device_caps *caps);

enum { MATRIX_EXTENSIONS = 2 };

// Features that kernels with coopmats need. matrices_enable links them in front of `next` and appends the names of
// their extensions to `extensions`. The struct must live until vkCreateDevice has returned.
struct matrix_features {
  VkPhysicalDeviceVulkanMemoryModelFeatures memory_model;
  VkPhysicalDeviceShaderFloat16Int8Features f16;
  VkPhysicalDevice16BitStorageFeatures storage;
  VkPhysicalDeviceMaintenance4Features maintenance; // SPIR-V 1.6 gives workgroup sizes as ids (LocalSizeId)
#ifdef VK_KHR_cooperative_matrix
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices;
#endif
#ifdef VK_NV_cooperative_matrix2
  VkPhysicalDeviceCooperativeMatrix2FeaturesNV conversions;
#endif
};
const void *matrices_enable(const struct device_caps *caps, struct matrix_features *features, const void *next,
                            const char **extensions, uint32_t *count);
#endif
