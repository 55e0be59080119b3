// cache.h: stores compiled pipelines on disk, one file per device and driver. A file that is missing, damaged or from
// another device is not an error; nothing is loaded then.
#ifndef CACHE_H
#define CACHE_H
#include "device.h"

// A hash of the device and of its driver with its version.
uint64_t cache_identity(const struct device_caps *caps);
// dir/<vendor>-<device>-<identity>.<ending>, malloc'ed; NULL when dir is NULL or "", or out of memory.
char *cache_path(const char *dir, const struct device_caps *caps, const char *ending);
deltaic_status cache_folders(const char *path); // creates every parent folder of `path`
// *data: malloc'ed, or NULL when nothing was loaded.
void cache_load(const char *path, const struct device_caps *caps, void **data, size_t *bytes);

// A device's cache of pipelines, and the file that keeps it.
struct pipeline_cache {
  VkPipelineCache handle;
  char *path;            // NULL: no file
  uint64_t loaded_bytes; // of the driver's data
};
VkResult cache_open(struct device *device, const char *dir, struct pipeline_cache *out);
// Adds what this device has compiled to the file. Its folder is created if missing. An interrupted write leaves an
// existing file intact. A failure is logged.
void cache_save(struct device *device, struct pipeline_cache *cache);
void cache_close(struct device *device, struct pipeline_cache *cache);
#endif
