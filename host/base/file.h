// file.h: reads and writes whole files. They are mapped for reading. Writing is atomic: after a crash the path has the
// old file or the new one.
#ifndef FILE_H
#define FILE_H
#include "new_file.h"
#include "platform.h"
#include "status.h"

struct file_view {
  const char *data; // NULL: the file is empty
  uint64_t bytes;
};

// Maps a regular file. Refuses folders, devices and unreadable files, each with its own message.
deltaic_status file_map(const char *path, struct file_view *out) INSIDE(file_map);
void file_unmap(struct file_view *view) INSIDE(file_unmap);

// A file that is being written (runtime/platform/new_file.h).
struct file_writer {
  const char *name; // the caller's path, which must stay valid until the end
  struct new_file file;
};
// After a failure nothing needs file_end().
deltaic_status file_begin(struct file_writer *w, const char *path) INSIDE(file_begin);
deltaic_status file_append(struct file_writer *w, const void *data, size_t bytes) INSIDE(file_append);
// Syncs and replaces. If `status` is a failure, the old file stays, and `status` is returned.
deltaic_status file_end(struct file_writer *w, deltaic_status status) INSIDE(file_end);
// All three of these.
deltaic_status file_replace(const char *path, const void *data, size_t bytes);
bool file_exists(const char *path) INSIDE(file_exists);
bool file_same(const char *a, const char *b); // two names of one file that exists
// "folder/name", which the caller frees; NULL after a failure, with its message.
char *path_join(const char *folder, const char *name) INSIDE(path_join);
// The folder of a path, "." for one name; the caller frees it. NULL after a failure, with its message.
char *path_parent(const char *path) INSIDE(path_parent);
// DELTAIC_NOT_FOUND or DELTAIC_IO, with a message for an errno: "PATH: cannot be WHAT: ...".
deltaic_status fail_errno(const char *path, const char *what, int code) INSIDE(fail_errno);
#endif
