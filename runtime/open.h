// open.h: opens a device and closes it.
#ifndef OPEN_H
#define OPEN_H
#include "device.h"

// cache_dir: folder for compiled pipelines or NULL for none.
deltaic_status device_open(struct instance *instance, VkPhysicalDevice physical, const struct device_caps *caps,
                           const struct plan *plan, const char *cache_dir, struct device **out);
void device_close(struct device *device); // waits for the queue; accepts NULL
#endif
