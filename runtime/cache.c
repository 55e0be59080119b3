// cache: reads and writes pipeline files: a header with the device's identity and a hash, then the driver's data.
#include "cache.h"
#include "new_file.h"
#include "platform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 256 << 20, LOCK_TRIES = 500, LOCK_PAUSE_NS = 10000000 };

struct header {
  char magic[8];
  uint64_t identity; // hash of the device and its driver
  uint64_t bytes, checksum;
};

static const char magic[8] = "DLTPIPE1";

static uint64_t hash(uint64_t h, const void *data, size_t bytes) { // FNV-1a
  for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3;
  return h;
}

static const uint64_t hash_start = 0xcbf29ce484222325;

// The driver's text includes its version; its UUID should change with every build.
uint64_t cache_identity(const struct device_caps *caps) {
  uint64_t h = hash(hash_start, &caps->vendor_id, sizeof caps->vendor_id);
  h = hash(h, &caps->device_id, sizeof caps->device_id);
  h = hash(h, caps->uuid, sizeof caps->uuid);
  h = hash(h, caps->driver_uuid, sizeof caps->driver_uuid);
  return hash(h, caps->driver, strlen(caps->driver));
}

char *cache_path(const char *dir, const struct device_caps *caps, const char *ending) {
  if (!dir || !dir[0]) return NULL;
  size_t bytes = strlen(dir) + strlen(ending) + 64;
  char *path = malloc(bytes);
  if (path)
    snprintf(path, bytes, "%s/%04x-%04x-%016llx.%s", dir, caps->vendor_id, caps->device_id,
             (unsigned long long)cache_identity(caps), ending);
  return path;
}

static struct header header_for(const struct device_caps *caps, const void *data, size_t bytes) {
  struct header header = {.identity = cache_identity(caps), .bytes = bytes, .checksum = hash(hash_start, data, bytes)};
  memcpy(header.magic, magic, sizeof magic);
  return header;
}

void cache_load(const char *path, const struct device_caps *caps, void **data, size_t *bytes) {
  *data = NULL;
  *bytes = 0;
  FILE *file = platform_open(path, "rb");
  if (!file) return;
  struct header header, expected;
  void *read = NULL;
  if (fread(&header, sizeof header, 1, file) != 1 || memcmp(header.magic, magic, sizeof magic)) goto done;
  if (header.bytes == 0 || header.bytes > MAX_BYTES || !(read = malloc(header.bytes))) goto done;
  if (fread(read, 1, header.bytes, file) != header.bytes) goto done;
  expected = header_for(caps, read, header.bytes);
  if (memcmp(&header, &expected, sizeof header)) goto done;
  *data = read;
  *bytes = header.bytes;
  read = NULL;
done:
  free(read);
  fclose(file);
}

deltaic_status cache_folders(const char *path) {
  char *copy = strdup(path);
  if (!copy) return fail_memory("a path", strlen(path));
  deltaic_status status = DELTAIC_OK;
  for (char *c = copy + 1; *copy && *c && !status; c++) {
    if (!platform_separator(*c) || c[-1] == ':') continue; // C: is a drive
    const char separator = *c;
    *c = 0;
    int code = platform_is(copy, PATH_FOLDER) ? 0 : platform_make_folder(copy, true);
    if (code && code != EEXIST) status = fail(DELTAIC_IO, "%s: %s", copy, strerror(code));
    *c = separator;
  }
  free(copy);
  return status;
}

static deltaic_status store(const char *path, const struct device_caps *caps, const void *data, size_t bytes) {
  struct header header = header_for(caps, data, bytes);
  struct new_file file;
  int code = new_file_begin(&file, path);
  if (!code) {
    bool written = fwrite(&header, sizeof header, 1, file.stream) == 1 && fwrite(data, 1, bytes, file.stream) == bytes;
    code = new_file_end(&file, written ? 0 : errno);
  }
  return code ? fail(DELTAIC_IO, "%s: %s", path, strerror(code)) : DELTAIC_OK;
}

// ---------------------------------------------------------------- a device's cache

static VkResult create(struct device *device, const void *data, size_t bytes, VkPipelineCache *out) {
  VkPipelineCacheCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, .initialDataSize = bytes, .pInitialData = data};
  return device->vk.vkCreatePipelineCache(device->handle, &info, NULL, out);
}

VkResult cache_open(struct device *device, const char *dir, struct pipeline_cache *out) {
  *out = (struct pipeline_cache){.path = cache_path(dir, &device->caps, "pipelines")};
  void *data = NULL;
  size_t bytes = 0;
  if (out->path) cache_load(out->path, &device->caps, &data, &bytes);
  VkResult result = create(device, data, bytes, &out->handle);
  if (result && data) result = create(device, NULL, bytes = 0, &out->handle); // the driver did not like its own
  free(data);
  out->loaded_bytes = bytes;
  return result;
}

void cache_close(struct device *device, struct pipeline_cache *cache) {
  if (!atomic_load(&device->silent)) device->vk.vkDestroyPipelineCache(device->handle, cache->handle, NULL);
  free(cache->path);
}

// Between reading the file and replacing it, nobody else may replace it. Whoever holds the lock may have been stopped,
// and some file systems have no locks: then this goes on without it. fclose() unlocks. NULL: there is no lock.
static FILE *lock_beside(const char *path) {
  const size_t bytes = strlen(path) + sizeof ".lock";
  char *name = malloc(bytes);
  if (name) snprintf(name, bytes, "%s.lock", path);
  FILE *file = name ? platform_open(name, "ab") : NULL;
  for (int i = 0; file && i < LOCK_TRIES && platform_lock(file) == EAGAIN; i++) platform_sleep_ns(LOCK_PAUSE_NS);
  free(name);
  return file;
}

// Adds what others have saved since this device loaded: another process, or the device on which choices were timed.
static void merge_saved(struct device *device, struct pipeline_cache *cache) {
  VkPipelineCache saved = VK_NULL_HANDLE;
  void *data;
  size_t bytes;
  cache_load(cache->path, &device->caps, &data, &bytes);
  if (data && bytes != cache->loaded_bytes && !create(device, data, bytes, &saved))
    (void)device->vk.vkMergePipelineCaches(device->handle, cache->handle, 1, &saved); // own pipelines are kept anyway
  if (saved) device->vk.vkDestroyPipelineCache(device->handle, saved, NULL);
  free(data);
}

static deltaic_status merge_and_store(struct device *device, struct pipeline_cache *cache) {
  size_t bytes = 0;
  merge_saved(device, cache);
  if (device->vk.vkGetPipelineCacheData(device->handle, cache->handle, &bytes, NULL)) return DELTAIC_OK;
  void *data = malloc(bytes);
  if (!data) return fail_memory("the driver's pipelines", bytes);
  deltaic_status status = DELTAIC_OK;
  if (!device->vk.vkGetPipelineCacheData(device->handle, cache->handle, &bytes, data))
    status = store(cache->path, &device->caps, data, bytes);
  free(data);
  return status;
}

// Loaded pipelines do not lengthen the driver's data, so an unchanged length means that there is nothing to save.
void cache_save(struct device *device, struct pipeline_cache *cache) {
  size_t bytes = 0;
  if (!cache->path || !cache->handle || atomic_load(&device->lost)) return;
  if (device->vk.vkGetPipelineCacheData(device->handle, cache->handle, &bytes, NULL) || bytes == cache->loaded_bytes)
    return;
  deltaic_status status = cache_folders(cache->path);
  if (!status) {
    FILE *lock = lock_beside(cache->path);
    status = merge_and_store(device, cache);
    if (lock) fclose(lock);
  }
  if (status)
    instance_log(device->instance, DELTAIC_LOG_WARNING, "compiled pipelines were not saved: %s", deltaic_last_error());
}
