// file.h: whole files in memory: mapped for reading, written so that a crash leaves the old file or the new one.
#ifndef FILE_H
#define FILE_H
#include "status.h"

struct file_view {
  const char *data; // NULL when the file is empty
  uint64_t bytes;
};

// Maps a regular file. Refuses folders, devices and what cannot be read, each with its sentence.
deltaic_status file_map(const char *path, struct file_view *out);
void file_unmap(struct file_view *view);
// Writes to a neighbour of path, syncs it, and renames it over path.
deltaic_status file_replace(const char *path, const void *data, size_t bytes);
bool file_exists(const char *path);
#endif
