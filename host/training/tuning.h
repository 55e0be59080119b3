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

// Names of the files with a checkpoint's weights.
struct weight_files {
  char **names;
  size_t count;
};

struct deltaic_tune {
  deltaic_tune_options o; // resolved; its texts are not valid
  char *path;
  struct name_parts adapt, whole;
  struct trainer *trainer;
  struct distillation d; // owns its teacher
  uint64_t fingerprint;  // of the checkpoint
  struct weight_files files;
  bool added;  // there is a gradient
  bool normed; // norm is the gradient's
  double norm;
  float *kept; // by deltaic_tune_keep_state(): all arrays of all that is trained; or NULL
  uint64_t kept_steps;
};

// Adds a name to a list, "a, b", if it has room and not that name yet.
void tuning_list(char *list, size_t capacity, const char *name, size_t length);
// Forgets the gradient.
deltaic_status tuning_clear(deltaic_tune *tune);
// deltaic_tune_create() on another backend than that of the options' device, or on NULL: the CPU.
deltaic_status tuning_create(const char *path, const deltaic_tune_options *options, struct backend *on,
                             deltaic_tune **out);
// Has `fill` write the files of `out`, which appears when they are complete. from: the checkpoint's folder. marker: the
// file that tells that a folder is what is written, and may be replaced by force.
#define TUNING_CHECKPOINT_MARKER "config.json"
#define TUNING_ADAPTER_MARKER "adapter_config.json"
deltaic_status tuning_write_folder(const char *from, const char *out, const char *marker, bool force,
                                   deltaic_status (*fill)(void *user, const char *folder), void *user);
// Call weight_files_free() even after a failure.
deltaic_status weight_files_list(struct checkpoint *c, struct weight_files *out);
void weight_files_free(struct weight_files *files);
// Copies a checkpoint's folder without other weights than these.
deltaic_status weight_files_copy(const struct weight_files *files, const char *from, const char *to);
// Writes the trained tensors into the files of a folder, which has the files of the checkpoint. No file of it is open.
deltaic_status tuning_write(struct trainer *trainer, const char *folder);
#endif
