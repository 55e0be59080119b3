// cache: reads and writes pipeline files: a header with the device's identity and a hash, then the driver's data.
#include "cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
static uint64_t identity(const struct device_caps *caps) {
  uint64_t h = hash(hash_start, &caps->vendor_id, sizeof caps->vendor_id);
  h = hash(h, &caps->device_id, sizeof caps->device_id);
  h = hash(h, caps->uuid, sizeof caps->uuid);
  h = hash(h, caps->driver_uuid, sizeof caps->driver_uuid);
  return hash(h, caps->driver, strlen(caps->driver));
}

char *cache_path(const char *dir, const struct device_caps *caps) {
  if (!dir || !dir[0]) return NULL;
  size_t bytes = strlen(dir) + 64;
  char *path = malloc(bytes);
  if (path)
    snprintf(path, bytes, "%s/%04x-%04x-%016llx.pipelines", dir, caps->vendor_id, caps->device_id,
             (unsigned long long)identity(caps));
  return path;
}

static struct header header_for(const struct device_caps *caps, const void *data, size_t bytes) {
  struct header header = {.identity = identity(caps), .bytes = bytes, .checksum = hash(hash_start, data, bytes)};
  memcpy(header.magic, magic, sizeof magic);
  return header;
}

void cache_load(const char *path, const struct device_caps *caps, void **data, size_t *bytes) {
  *data = NULL;
  *bytes = 0;
  FILE *file = fopen(path, "rb");
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

// Creates every parent folder of `path`.
static deltaic_status make_folders(const char *path) {
  char *copy = strdup(path);
  if (!copy) return fail_memory("a path", strlen(path));
  deltaic_status status = DELTAIC_OK;
  for (char *slash = strchr(copy + 1, '/'); slash && !status; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    if (mkdir(copy, 0700) && errno != EEXIST) status = fail(DELTAIC_IO, "%s: %s", copy, strerror(errno));
    *slash = '/';
  }
  free(copy);
  return status;
}

deltaic_status cache_store(const char *path, const struct device_caps *caps, const void *data, size_t bytes) {
  deltaic_status status = make_folders(path);
  if (status) return status;
  struct header header = header_for(caps, data, bytes);
  size_t length = strlen(path) + 8;
  char *temporary = malloc(length);
  if (!temporary) return fail_memory("a path", length);
  snprintf(temporary, length, "%s.XXXXXX", path);
  int fd = mkstemp(temporary);
  FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
  bool written = file && fwrite(&header, sizeof header, 1, file) == 1 && fwrite(data, 1, bytes, file) == bytes;
  if (file)
    written &= fclose(file) == 0;
  else if (fd >= 0)
    close(fd);
  if (!written || rename(temporary, path)) {
    status = fail(DELTAIC_IO, "%s: %s", path, strerror(errno));
    if (fd >= 0) unlink(temporary);
  }
  free(temporary);
  return status;
}
