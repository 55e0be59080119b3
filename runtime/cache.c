// cache: reads and writes pipeline files: a header with the device's identity and a hash, then the driver's data.
#include "cache.h"
#include "new_file.h"
#include "platform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 256 << 20 };

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

deltaic_status cache_store(const char *path, const struct device_caps *caps, const void *data, size_t bytes) {
  deltaic_status status = cache_folders(path);
  if (status) return status;
  struct header header = header_for(caps, data, bytes);
  struct new_file file;
  int code = new_file_begin(&file, path);
  if (!code) {
    bool written = fwrite(&header, sizeof header, 1, file.stream) == 1 && fwrite(data, 1, bytes, file.stream) == bytes;
    code = new_file_end(&file, written ? 0 : errno);
  }
  return code ? fail(DELTAIC_IO, "%s: %s", path, strerror(code)) : DELTAIC_OK;
}
