// cache.h: compiled pipelines on disk, one file per device and driver. A file that is missing, damaged or of another
// device is no error: there is nothing to load.
#ifndef CACHE_H
#define CACHE_H
#include "device.h"

// folder/<vendor>-<device>-<hash of the identity>.pipelines, malloc'ed; NULL when dir is NULL or "", or without memory.
char *cache_path(const char *dir, const struct device_caps *caps);
// *data: malloc'ed, or NULL when there is nothing.
void cache_load(const char *path, const struct device_caps *caps, void **data, size_t *bytes);
// Makes the folder when missing. An interrupted write leaves the older file whole.
deltaic_status cache_store(const char *path, const struct device_caps *caps, const void *data, size_t bytes);
#endif
