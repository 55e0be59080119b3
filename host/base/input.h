// input.h: a file that is read, from the file system, where it is mapped, or from a caller's functions.
#ifndef INPUT_H
#define INPUT_H
#include "file.h"

struct input {
  const deltaic_source *source; // NULL: the file system, or memory
  void *file;                   // the source's
  const char *name;             // for messages; the caller keeps it
  struct file_view view;        // bytes: of the whole file; data: its beginning
  uint64_t held;                // bytes that are at view.data
  bool mapped;
  deltaic_status status; // the first failure of input_read()
};

// Copies a caller's struct. function: for the message.
deltaic_status input_source(deltaic_source *to, const deltaic_source *from, const char *function);
// source: NULL for the file system. DELTAIC_NOT_FOUND: there is no such file. After a failure nothing needs
// input_close().
deltaic_status input_open(const deltaic_source *source, const char *name, struct input *out);
// The same, with the whole file held.
deltaic_status input_open_whole(const deltaic_source *source, const char *name, struct input *out);
// The same for a file that need not exist. *found: whether it does.
deltaic_status input_open_if(const deltaic_source *source, const char *name, struct input *out, bool *found);
void input_close(struct input *in); // accepts a zeroed struct
// Bytes that the caller keeps.
struct input input_memory(const char *name, const void *data, uint64_t bytes);
// Holds the first `bytes` bytes, or the whole file if it has fewer. Moves view.data.
deltaic_status input_hold(struct input *in, uint64_t bytes);
// Reads bytes at `at`, which are in the file.
deltaic_status input_read(struct input *in, uint64_t at, void *to, uint64_t bytes);

bool input_is_gguf(const char *name); // by its name, as a source has no folders
#endif
