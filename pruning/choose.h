// choose.h: decides how many channels each layer keeps and runs a pruning method on all heads of a model.
#ifndef CHOOSE_H
#define CHOOSE_H
#include "rank.h"
#include "statistics.h"

struct chosen_layer {
  struct source_layer from;
  int keep;
  struct prune_result *heads;           // (H)
  struct rank_measures *before, *after; // (H); zeros if nothing was measured
};

struct deltaic_selection {
  char method[32];
  deltaic_prune_side side;
  double cut;           // fraction of key channels removed over all layers
  uint64_t fingerprint; // of the model
  bool measured;
  uint64_t text_hash, text_tokens; // hash and length of the calibration text; 0 tokens: no text
  struct chosen_layer *layers;     // in the order of the source's layers
  int count;
};

deltaic_status choose(const struct source *source, const struct deltaic_statistics *s,
                      const deltaic_select_options *options, struct deltaic_selection **out);
deltaic_status choose_given(const struct source *source, const struct deltaic_statistics *s, const char *name,
                            uint32_t keep, const int32_t *kept, size_t count, struct deltaic_selection **out);
void selection_free(struct deltaic_selection *s);
#endif
