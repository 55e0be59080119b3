// rewrite.h: writes a checkpoint's tensors and config without the removed key channels.
#ifndef REWRITE_H
#define REWRITE_H
#include "choose.h"
#include "tensor_file.h"

struct rewrite_options {
  deltaic_progress progress; // counts bytes
  void *user;
  const char *refit; // a note for the metadata; NULL: no refit
};

// Writes `file`. Tensors with rows of key channels are sliced (or projected); other tensors are copied exactly.
// o_offsets (selection->count) receives the offset of each pruned layer's o_proj.weight in the file.
deltaic_status rewrite_tensors(const struct source *source, const struct deltaic_selection *selection, const char *file,
                               const struct rewrite_options *options, uint64_t *o_offsets);
// Sets *text to the config of the pruned checkpoint; the caller frees it.
deltaic_status rewrite_config(const struct source *source, const struct deltaic_selection *selection, char **text);
// Returns x = num / den such that fla's trunc(den * x) is num. It rounds x up if trunc would give num - 1.
double rewrite_ratio(int num, int den);
#endif
