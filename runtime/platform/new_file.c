// new_file: writes a file whole or not at all. See new_file.h.
#include "new_file.h"
#include "platform.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

char *name_beside(const char *path) {
  static atomic_uint serial;
  size_t length = strlen(path), capacity = length + 48;
  while (length > 1 && platform_separator(path[length - 1])) length--;
  char *name = malloc(capacity);
  if (name)
    snprintf(name, capacity, "%.*s.%u-%u.tmp", (int)length, path, platform_process(), atomic_fetch_add(&serial, 1));
  return name;
}

static FILE *create_beside(struct new_file *f) {
  FILE *stream;
  do {
    free(f->beside);
    f->beside = name_beside(f->path);
    stream = f->beside ? platform_create(f->beside, f->path) : NULL;
  } while (!stream && f->beside && errno == EEXIST);
  if (!stream) { // there is nothing to remove
    int code = errno;
    free(f->beside);
    f->beside = NULL;
    errno = code;
  }
  return stream;
}

int new_file_begin(struct new_file *f, const char *path) {
  struct path_facts facts;
  bool direct = !platform_facts(path, true, &facts) && facts.kind != PATH_FILE;
  *f = (struct new_file){.path = direct ? strdup(path) : platform_target(path)};
  if (f->path) f->stream = direct ? platform_open(path, "wb") : create_beside(f);
  if (!f->stream) return new_file_end(f, errno);
  errno = 0; // what fails from here on sets it
  return 0;
}

int new_file_end(struct new_file *f, int code) {
  if (!code && ferror(f->stream)) code = errno ? errno : EIO;
  errno = 0;
  if (!code && (f->beside ? platform_sync(f->stream) : fflush(f->stream))) code = errno ? errno : EIO;
  if (f->stream && fclose(f->stream) && !code) code = errno;
  if (!code && f->beside) code = platform_rename(f->beside, f->path);
  if (code && f->beside) platform_remove(f->beside);
  free(f->beside);
  free(f->path);
  *f = (struct new_file){0};
  return code;
}
