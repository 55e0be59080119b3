// rewrite.h: writes a checkpoint's tensors and config without the removed key channels.
#ifndef REWRITE_H
#define REWRITE_H
#include "choose.h"
#include "tensor_file.h"

struct rewrite_options {
  deltaic_progress progress; // bytes
  void *user;
  const char *refit; // noted in the metadata; NULL: no refit
};

// Writes file: the tensors that hold rows of key channels cut (or, for a projection, rotated), all others byte for
// byte. o_offsets (selection->count): where in the file each pruned layer's o_proj.weight begins.
deltaic_status rewrite_tensors(const struct source *source, const struct deltaic_selection *selection, const char *file,
                               const struct rewrite_options *options, uint64_t *o_offsets);
// The config that goes with it, as text to be freed.
deltaic_status rewrite_config(const struct source *source, const struct deltaic_selection *selection, char **text);
// x = num / den such that fla's trunc(den * x) is num: the next double above where rounding would lose one.
double rewrite_ratio(int num, int den);
#endif
