// block.h: one layer: norm -> mixer -> residual -> norm -> FFN -> residual; without an FFN, the first half.
#ifndef BLOCK_H
#define BLOCK_H
#include "ffn.h"

struct block_weights {
  struct tensor mixer_norm, ffn_norm; // (1, D) f32
  void *ffn;                          // its own weights; NULL where the layer has none
};

void block_bind(const struct model_spec *m, uint32_t layer, struct weights *w, struct block_weights *b);
// What a caller who looks is told of the layer.
deltaic_probed block_probed(const struct layer_spec *layer, uint32_t index);
// Returns the residual stream, x (T, D), after the layer.
struct tensor block_forward(const struct model_spec *m, const struct layer_spec *layer, const struct block_weights *b,
                            const void *mixer_weights, const void *state, const struct call *call, struct tensor x);
#endif
