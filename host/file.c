// file: mapping and replacing whole files (POSIX). See file.h.
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

static deltaic_status fail_errno(const char *path, const char *what, int code) {
  if (code == ENOENT) return fail(DELTAIC_NOT_FOUND, "%s: no such file or folder", path);
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
  // O_NONBLOCK: opening a named pipe must not wait for somebody to write into it.
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

static bool write_all(int file, const char *data, size_t bytes) {
  while (bytes) {
    ssize_t wrote = write(file, data, bytes < 1u << 30 ? bytes : 1u << 30);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return false;
    data += wrote;
    bytes -= (size_t)wrote;
  }
  return true;
}

// The rename is on disk only when its folder is. Some file systems cannot sync a folder; then nothing is lost but the
// promise that the new file survives a crash right after the call.
static void sync_folder(char *path) {
  char *slash = strrchr(path, '/');
  if (slash) slash[slash == path] = 0;
  int folder = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  fsync(folder);
  close(folder);
}

// A new file beside path, named in `name`; it has the mode of the file it will replace.
static int create_beside(const char *path, char *name, size_t capacity) {
  static atomic_uint serial;
  struct stat about;
  int file;
  do {
    snprintf(name, capacity, "%s.%ld-%u.tmp", path, (long)getpid(), atomic_fetch_add(&serial, 1));
    file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file < 0 && errno == EEXIST);
  if (file >= 0 && stat(path, &about) == 0 && S_ISREG(about.st_mode)) fchmod(file, about.st_mode & 0777);
  return file;
}

deltaic_status file_replace(const char *path, const void *data, size_t bytes) {
  size_t capacity = strlen(path) + 48;
  char *name = malloc(capacity);
  if (!name) return fail_memory("a file name", capacity);
  deltaic_status status = DELTAIC_OK;
  int file = create_beside(path, name, capacity);
  if (file < 0) {
    status = fail_errno(path, "written", errno);
    goto done;
  }
  int code = write_all(file, data, bytes) && fsync(file) == 0 ? 0 : errno;
  if (close(file) && !code) code = errno;
  if (!code && rename(name, path)) code = errno;
  if (code) {
    unlink(name);
    status = fail_errno(path, "written", code);
    goto done;
  }
  sync_folder(name);
done:
  free(name);
  return status;
}
