// caps.h: records the capabilities of physical devices before one is opened.
#ifndef CAPS_H
#define CAPS_H
#include "device.h"

// Capabilities of every physical device, unsorted. *caps is malloc'ed (NULL when count is 0).
deltaic_status instance_devices(struct instance *instance, struct device_caps **caps, VkPhysicalDevice **handles,
                                uint32_t *count);

// Bytes of the largest device-local heap that are free for this process; 0 where the driver does not report them.
uint64_t device_free_bytes(VkPhysicalDevice physical, const struct device_caps *caps);

enum { NO_FAMILY = UINT32_MAX };
// The queue family to compute in and the number of valid bits of its time stamps; NO_FAMILY: no family computes.
uint32_t compute_family(VkPhysicalDevice physical, uint32_t *timestamp_bits);

struct extensions {
  VkExtensionProperties *all; // to free()
  uint32_t count;
};
deltaic_status device_extensions(VkPhysicalDevice physical, struct extensions *out);
bool extensions_have(const void *extensions, const char *name); // a struct extensions
#endif
