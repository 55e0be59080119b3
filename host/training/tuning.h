// tuning.h: what the parts of a training (deltaic_tune.h) share.
#ifndef TUNING_H
#define TUNING_H
#include "deltaic_tune.h"
#include "trainer.h"

// Texts of which a name may contain one.
struct name_parts {
  char *text; // owns the parts, which NULs separate
  size_t count;
};

struct deltaic_tune {
  deltaic_tune_options o; // resolved; its texts are not valid
  char *path;
  struct name_parts adapt, whole;
  struct trainer *trainer;
  struct distillation d; // owns its teacher
  uint64_t fingerprint;  // of the checkpoint
  char **files;          // names of the files with the checkpoint's weights
  size_t file_count;
};

// deltaic_tune_create() on another backend than that of the options' device, or on NULL: the CPU.
deltaic_status tuning_create(const char *path, const deltaic_tune_options *options, struct backend *on,
                             deltaic_tune **out);
// Writes the trained tensors into the files of a folder, which has the files of the checkpoint. No file of it is open.
deltaic_status tuning_write(struct trainer *trainer, const char *folder);
#endif
