// block.h: one layer: norm -> mixer -> residual -> norm -> MLP -> residual; of models without MLPs, the first half.
#ifndef BLOCK_H
#define BLOCK_H
#include "mixer.h"

struct block_weights {
  struct tensor mixer_norm, mlp_norm; // (1, D) f32
  struct tensor gate_up, down;        // (2F, D): gate's rows, then up's; (D, F)
};

void block_bind(const struct model_spec *m, uint32_t layer, struct weights *w, struct block_weights *b);
// What the caller who looks is told of a layer.
deltaic_probed block_probed(const struct layer_spec *layer, uint32_t index);
// Returns x (T, D) after the layer.
struct tensor block_forward(const struct model_spec *m, const struct layer_spec *layer, const struct block_weights *b,
                            const void *mixer_weights, const void *state, const struct call *call, struct tensor x);
#endif
