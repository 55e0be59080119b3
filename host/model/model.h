// model.h: a model on a device: its description and its weights. It is immutable once open.
#ifndef MODEL_H
#define MODEL_H
#include "block.h"

struct deltaic_model {
  struct backend *backend;       // borrowed from the device; NULL: the model is only inspected
  struct checkpoint *checkpoint; // NULL once the weights are uploaded
  struct adapter *adapter;       // NULL: none was given, or the weights are uploaded
  struct model_spec spec;
  struct weights weights;
  struct tensor embedding, norm, head; // (V, D), (1, D), (V, D); a tied head is the embedding
  struct block_weights *blocks;        // L
  void **mixers;                       // L: each mixer's own weights
  deltaic_model_info info;
};

// Copies a caller's options to *o, and their source, if there is one, to *source. given: NULL for the defaults.
// function: its name, for messages.
deltaic_status model_options_read(const deltaic_model_options *given, deltaic_model_options *o, deltaic_source *source,
                                  const char *function);
// Opens and declares everything without allocating device memory. Call model_clear() afterwards, even after a failure.
// options: NULL for the defaults.
deltaic_status model_declare(struct deltaic_model *m, struct backend *backend, const char *path,
                             const deltaic_model_options *options) INSIDE(model_declare);
// The same for a new model, whose spec is set: calls made->ask for each of its tensors.
deltaic_status model_declare_new(struct deltaic_model *m, struct new_tensors *made) INSIDE(model_declare_new);
void model_clear(struct deltaic_model *m) INSIDE(model_clear);
bool model_grows(const struct model_spec *spec);
#endif
