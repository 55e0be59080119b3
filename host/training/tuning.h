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
  bool added;  // there is a gradient
  bool normed; // norm is the gradient's
  double norm;
  float *kept; // by deltaic_tune_keep_state(): all arrays of all that is trained; or NULL
  uint64_t kept_steps;
};

// Forgets the gradient.
deltaic_status tuning_clear(deltaic_tune *tune);
// deltaic_tune_create() on another backend than that of the options' device, or on NULL: the CPU.
deltaic_status tuning_create(const char *path, const deltaic_tune_options *options, struct backend *on,
                             deltaic_tune **out);
// Has `fill` write the files of `out`, which appears when they are complete. marker: the file that tells that a folder
// is what is written, and may be replaced by force.
#define TUNING_ADAPTER_MARKER "adapter_config.json"
deltaic_status tuning_write_folder(deltaic_tune *tune, const char *out, const char *marker, bool force,
                                   deltaic_status (*fill)(deltaic_tune *tune, const char *folder));
// Writes the trained tensors into the files of a folder, which has the files of the checkpoint. No file of it is open.
deltaic_status tuning_write(struct trainer *trainer, const char *folder);
#endif
