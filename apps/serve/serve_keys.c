// serve_keys: keys are compared by their hashes, all of each of them, so that the time says nothing about them.
#include "serve_keys.h"
#include "common.h"
#include "sha256.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void hash(const char *text, size_t bytes, char hex[65]) {
  struct sha256 h;
  sha256_begin(&h);
  sha256_add(&h, text, bytes);
  sha256_end(&h, hex);
}

int keys_read(const char *path, struct keys *keys) {
  size_t bytes;
  char *text = file_read(path, &bytes);
  *keys = (struct keys){0};
  if (!text) return EXIT_FAILED;
  for (char *line = text, *end; *line; line = end) {
    end = line + strcspn(line, "\n");
    size_t length = (size_t)(end - line);
    end += *end == '\n';
    while (length && strchr(" \t\r", line[length - 1])) --length;
    if (!length || *line == '#') continue;
    keys->hashes = must_resize(keys->hashes, (keys->count + 1) * sizeof *keys->hashes);
    hash(line, length, keys->hashes[keys->count++]);
  }
  free(text);
  return keys->count ? EXIT_OK : complain(EXIT_FAILED, "%s: there is no key in it", path);
}

void keys_free(struct keys *keys) {
  free(keys->hashes);
  *keys = (struct keys){0};
}

size_t keys_find(const struct keys *keys, const char *header) {
  char shown[65];
  size_t found = 0;
  if (!header || strncasecmp(header, "Bearer ", 7) != 0) return 0;
  hash(header + 7, strlen(header + 7), shown);
  for (size_t i = 0; i < keys->count; ++i) {
    unsigned differ = 0;
    for (size_t k = 0; k < 64; ++k) differ |= (unsigned)(shown[k] ^ keys->hashes[i][k]);
    found |= (i + 1) * (size_t)(differ == 0);
  }
  return found;
}
