// merged.h: a checkpoint with adapters merged, for those commands of the plugin that read a checkpoint folder.
#ifndef MERGED_H
#define MERGED_H
#include <stdbool.h>

#define MERGED_OPTION(variable, more)                                                                                  \
  ONCE(0, "adapter", "DIR", variable,                                                                                  \
       "folder with LoRA adapters in PEFT's format, which are merged first. CHECKPOINT must be a folder" more)

struct merged {
  char *folder, *name; // the temporary folder, and what messages call it
};

// Each returns an exit code and prints a message if it is not EXIT_OK.
// Checks that `out` does not replace the adapters.
int merged_check(const char *adapter, const char *out);
// Writes the merged checkpoint to `out`, with progress.
int merged_write(const char *model, const char *adapter, const char *out, bool force, bool quiet);
// Makes the folder beside `out`; NULL: in the system's folder for temporary files. Call merged_delete() even after a failure.
int merged_make(struct merged *m, const char *model, const char *adapter, const char *out, bool quiet);
void merged_delete(struct merged *m);
#endif
