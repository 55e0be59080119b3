// file.h: whole files in memory: mapped for reading, written so that a crash leaves the old file or the new one.
#ifndef FILE_H
#define FILE_H
#include "status.h"

#include <stdio.h>

struct file_view {
  const char *data; // NULL when the file is empty
  uint64_t bytes;
};

// Maps a regular file. Refuses folders, devices and what cannot be read, each with its sentence.
deltaic_status file_map(const char *path, struct file_view *out);
void file_unmap(struct file_view *view);

// A file on its way to a path. What the path names, at the end of its links, is replaced when the new one is whole:
// that is a neighbour until then. A device or a pipe is no file to replace, and is written straight into.
struct file_writer {
  const char *name; // as the caller calls it; to be kept until the end
  FILE *stream;
  char *path;   // what is replaced
  char *beside; // the neighbour; NULL: written straight into
};
// Nothing is left to be ended after a failure.
deltaic_status file_begin(struct file_writer *w, const char *path);
deltaic_status file_append(struct file_writer *w, const void *data, size_t bytes);
// Syncs and replaces. Where `status` is a failure, what is there stays, and it is returned.
deltaic_status file_end(struct file_writer *w, deltaic_status status);
// All of it.
deltaic_status file_replace(const char *path, const void *data, size_t bytes);
bool file_exists(const char *path);
// "folder/name", to be freed; NULL after a failure's sentence.
char *path_join(const char *folder, const char *name);
// DELTAIC_NOT_FOUND or DELTAIC_IO, with the sentence for an errno: "PATH: cannot be WHAT: ...".
deltaic_status fail_errno(const char *path, const char *what, int code);
#endif
