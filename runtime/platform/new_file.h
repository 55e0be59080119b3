// new_file: writes a file whole or not at all. A temporary file beside the path's target (after all links) replaces it
// once it is complete, so that after a failure or a crash the path has the old file or the new one. A device or a pipe
// cannot be replaced and is written directly.
#ifndef NEW_FILE_H
#define NEW_FILE_H
#include <stdio.h>

struct new_file {
  FILE *stream;
  char *path;   // the file that is replaced
  char *beside; // the temporary file; NULL: `path` is written directly
};

int new_file_begin(struct new_file *f, const char *path); // 0 or an errno; then nothing needs new_file_end()
// Syncs and replaces. If `code` or an error of the stream is not 0, the old file stays. Returns `code`, or else the
// first error.
int new_file_end(struct new_file *f, int code);
// A name of a temporary file or folder beside the path, which the caller frees. No other call returns it.
char *name_beside(const char *path);
#endif
