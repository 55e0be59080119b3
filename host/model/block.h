// block.h: one layer: norm -> mixer -> residual -> norm -> FFN -> residual, or mixer -> norm -> residual -> FFN -> norm
// -> residual. Without an FFN it is the first half.
#ifndef BLOCK_H
#define BLOCK_H
#include "ffn.h"

struct block_weights {
  struct tensor mixer_norm, ffn_norm; // (1, D) f32
  void *ffn;                          // the FFN's own weights; NULL: no FFN
};

void block_bind(const struct model_spec *m, uint32_t layer, struct weights *w, struct block_weights *b);
// The layer's sizes, which probes pass to the caller.
deltaic_probed block_probed(const struct layer_spec *layer, uint32_t index);
// The halves: each returns the residual stream, x (T, D), after it. block_ffn() returns x if the layer has no FFN.
struct tensor block_mixer(const struct model_spec *m, const struct layer_spec *layer, const struct block_weights *b,
                          const void *mixer_weights, const void *state, const struct call *call, struct tensor x);
struct tensor block_ffn(const struct model_spec *m, const struct layer_spec *layer, const struct block_weights *b,
                        const struct call *call, struct tensor x);
// Returns the residual stream after the layer.
struct tensor block_forward(const struct model_spec *m, const struct layer_spec *layer, const struct block_weights *b,
                            const void *mixer_weights, const void *state, const struct call *call, struct tensor x)
    INSIDE(block_forward);
#endif
