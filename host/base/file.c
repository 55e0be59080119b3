// file: maps and replaces whole files. See file.h.
#include "file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

deltaic_status fail_errno(const char *path, const char *what, int code) {
  if (code == ENOENT) return fail(DELTAIC_NOT_FOUND, "%s: no such file or folder", *path ? path : "\"\"");
  return fail(DELTAIC_IO, "%s: cannot be %s: %s", path, what, strerror(code));
}

deltaic_status file_map(const char *path, struct file_view *out) {
  *out = (struct file_view){0};
  int code = platform_map(path, &out->data, &out->bytes);
  switch (code) {
  case 0: return DELTAIC_OK;
  case EISDIR: return fail(DELTAIC_IO, "%s: is a folder, not a file", path);
  case ENODEV: return fail(DELTAIC_IO, "%s: is not a regular file", path);
  default: return fail_errno(path, "opened", code);
  }
}

void file_unmap(struct file_view *view) {
  if (view->data) platform_unmap(view->data, view->bytes);
  *view = (struct file_view){0};
}

bool file_exists(const char *path) {
  struct path_facts facts;
  return platform_facts(path, true, &facts) == 0;
}

bool file_same(const char *a, const char *b) {
  struct path_facts x, y;
  return !platform_facts(a, true, &x) && !platform_facts(b, true, &y) && x.volume == y.volume && x.index == y.index;
}

// Exactly one separator between them, even if the folder ends with some. None behind "".
char *path_join(const char *folder, const char *name) {
  size_t length = strlen(folder);
  while (length && platform_separator(folder[length - 1])) length--;
  char *path = malloc(length + strlen(name) + 2);
  if (!path) fail_memory("a file name", length + strlen(name) + 2);
  if (path) sprintf(path, "%.*s%s%s", (int)length, folder, *folder ? "/" : "", name);
  return path;
}

char *path_parent(const char *path) {
  size_t length = platform_folder(path);
  if (length > 1 && platform_separator(path[length - 1]) && path[length - 2] != ':')
    length--; // C:/ is a folder, C: none
  char *folder = malloc(length + 2);
  if (!folder) fail_memory("a file name", length + 2);
  if (folder) sprintf(folder, "%.*s", length ? (int)length : 1, length ? path : ".");
  return folder;
}

// ---------------------------------------------------------------- replacing

deltaic_status file_begin(struct file_writer *w, const char *path) {
  *w = (struct file_writer){.name = path};
  int code = new_file_begin(&w->file, path);
  return code ? fail_errno(path, "written", code) : DELTAIC_OK;
}

deltaic_status file_append(struct file_writer *w, const void *data, size_t bytes) {
  return bytes && fwrite(data, 1, bytes, w->file.stream) != bytes ? fail_errno(w->name, "written", errno) : DELTAIC_OK;
}

deltaic_status file_end(struct file_writer *w, deltaic_status status) {
  int code = new_file_end(&w->file, status ? ECANCELED : 0);
  return !status && code ? fail_errno(w->name, "written", code) : status;
}

deltaic_status file_replace(const char *path, const void *data, size_t bytes) {
  struct file_writer w;
  deltaic_status status = file_begin(&w, path);
  return status ? status : file_end(&w, file_append(&w, data, bytes));
}
