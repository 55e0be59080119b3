// file: maps and replaces whole files (POSIX). See file.h.
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

deltaic_status fail_errno(const char *path, const char *what, int code) {
  if (code == ENOENT) return fail(DELTAIC_NOT_FOUND, "%s: no such file or folder", *path ? path : "\"\"");
  return fail(DELTAIC_IO, "%s: cannot be %s: %s", path, what, strerror(code));
}

static deltaic_status map(const char *path, int file, struct file_view *out) {
  struct stat about;
  if (fstat(file, &about)) return fail_errno(path, "read", errno);
  if (S_ISDIR(about.st_mode)) return fail(DELTAIC_IO, "%s: is a folder, not a file", path);
  if (!S_ISREG(about.st_mode)) return fail(DELTAIC_IO, "%s: is not a regular file", path);
  if (about.st_size == 0) return DELTAIC_OK;
  void *data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) return fail_errno(path, "mapped", errno);
  *out = (struct file_view){data, (uint64_t)about.st_size};
  return DELTAIC_OK;
}

deltaic_status file_map(const char *path, struct file_view *out) {
  *out = (struct file_view){0};
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return fail_errno(path, "opened", errno);
  deltaic_status status = map(path, file, out);
  close(file);
  return status;
}

void file_unmap(struct file_view *view) {
  if (view->data) munmap((void *)view->data, view->bytes);
  *view = (struct file_view){0};
}

bool file_exists(const char *path) {
  struct stat about;
  return stat(path, &about) == 0;
}

bool file_same(const char *a, const char *b) {
  struct stat x, y;
  return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// Exactly one slash between them, even if the folder ends with some.
char *path_join(const char *folder, const char *name) {
  size_t length = strlen(folder);
  while (length && folder[length - 1] == '/') length--;
  char *path = malloc(length + strlen(name) + 2);
  if (!path) fail_memory("a file name", length + strlen(name) + 2);
  if (path) sprintf(path, "%.*s/%s", (int)length, folder, name);
  return path;
}

// ---------------------------------------------------------------- replacing

// The rename is on disk only when its folder is. If the file system cannot sync a folder, the new file may not survive
// a crash right after the call.
static void sync_folder(char *path) {
  char *slash = strrchr(path, '/');
  if (slash) slash[slash == path] = 0;
  int folder = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  fsync(folder);
  close(folder);
}

// Resolves all links of path. The target need not exist.
static char *find_target(const char *path) {
  struct stat about;
  char *target = realpath(path, NULL);
  if (target || errno != ENOENT) return target;
  if (lstat(path, &about)) return strdup(path);
  int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
  if (file < 0) return NULL;
  close(file);
  return realpath(path, NULL);
}

// Creates a temporary file beside w->path, named in w->beside, with the mode of the file that it will replace.
static int create_beside(struct file_writer *w) {
  static atomic_uint serial;
  struct stat about;
  int file;
  size_t capacity = strlen(w->path) + 48;
  w->beside = malloc(capacity);
  if (!w->beside) return -1;
  do {
    snprintf(w->beside, capacity, "%s.%ld-%u.tmp", w->path, (long)getpid(), atomic_fetch_add(&serial, 1));
    file = open(w->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file < 0 && errno == EEXIST);
  if (file >= 0 && stat(w->path, &about) == 0) fchmod(file, about.st_mode & 0777);
  if (file >= 0) return file;
  free(w->beside); // nothing to remove
  w->beside = NULL;
  return -1;
}

deltaic_status file_begin(struct file_writer *w, const char *path) {
  struct stat about;
  int file = -1;
  *w = (struct file_writer){.name = path};
  if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
    w->path = strdup(path);
    if (w->path) file = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
  } else {
    w->path = find_target(path);
    if (w->path) file = create_beside(w);
  }
  if (file >= 0) w->stream = fdopen(file, "wb");
  if (w->stream) return DELTAIC_OK;
  deltaic_status status = fail_errno(path, "written", errno);
  if (file >= 0) close(file);
  return file_end(w, status);
}

deltaic_status file_append(struct file_writer *w, const void *data, size_t bytes) {
  return bytes && fwrite(data, 1, bytes, w->stream) != bytes ? fail_errno(w->name, "written", errno) : DELTAIC_OK;
}

deltaic_status file_end(struct file_writer *w, deltaic_status status) {
  bool bad = !status && (fflush(w->stream) || (w->beside && fsync(fileno(w->stream))));
  if (bad) status = fail_errno(w->name, "written", errno);
  if (w->stream && fclose(w->stream) && !status) status = fail_errno(w->name, "written", errno);
  if (!status && w->beside && rename(w->beside, w->path)) status = fail_errno(w->name, "written", errno);
  if (status && w->beside) unlink(w->beside);
  if (!status && w->beside) sync_folder(w->path);
  free(w->beside);
  free(w->path);
  *w = (struct file_writer){0};
  return status;
}

deltaic_status file_replace(const char *path, const void *data, size_t bytes) {
  struct file_writer w;
  deltaic_status status = file_begin(&w, path);
  return status ? status : file_end(&w, file_append(&w, data, bytes));
}
