// product.h: builds the pruned checkpoint in a folder beside its final path and renames it when complete.
#ifndef PRODUCT_H
#define PRODUCT_H
#include "rewrite.h"

struct deltaic_pruning {
  struct source source;
  char *out, *folder; // the final path; the temporary path, or NULL if it no longer exists
  char *tensors;      // folder/model.safetensors
  uint64_t *o_offsets;
  bool force;
};

deltaic_status product_begin(const char *path, const struct deltaic_selection *selection, const char *out,
                             const deltaic_prune_write_options *options, struct deltaic_pruning **pruning);
deltaic_status product_commit(struct deltaic_pruning *p);
void product_free(struct deltaic_pruning *p);
#endif
