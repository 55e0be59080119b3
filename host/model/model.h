// model.h: a checkpoint on a device: what it is, and its weights. Immutable once open.
#ifndef MODEL_H
#define MODEL_H
#include "block.h"

struct deltaic_model {
  struct backend *backend;       // borrowed from the device; NULL while only inspecting without one
  struct checkpoint *checkpoint; // NULL once the weights are uploaded
  struct model_spec spec;
  struct weights weights;
  struct tensor embedding, norm, head; // (V, D), (1, D), (V, D); head is the embedding when tied
  struct block_weights *blocks;        // L
  void **mixers;                       // L: each mixer's own weights
  deltaic_model_info info;
};

// Everything up to, and without, taking memory on the device; also after a failure to be cleared. attention_window: the
// most that any layer sees, 0: as it is.
deltaic_status model_declare(struct deltaic_model *m, struct backend *backend, const char *path,
                             uint32_t attention_window);
void model_clear(struct deltaic_model *m);
bool model_grows(const struct model_spec *spec);
#endif
