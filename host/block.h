// block.h: one layer: norm -> mixer -> residual -> norm -> FFN -> residual; without an FFN, the first half.
#ifndef BLOCK_H
#define BLOCK_H
#include "ffn.h"

struct block_weights {
  struct tensor mixer_norm, ffn_norm; // (1, D) f32
  void *ffn;                          // its own weights; NULL where the layer has none
};

void block_bind(const struct model_spec *m, uint32_t layer, struct weights *w, struct block_weights *b);
// Takes what the layer takes for T rows of B sequences.
void block_scratch(const struct layer_spec *layer, const void *mixer_weights, struct backend *b,
                   struct scratch *measure, uint32_t T, uint32_t B);
// A norm of the call's residual stream x.
struct linear_input block_norm(struct call *call, struct tensor x, struct tensor weight, float eps);
// x (T, D) <- layer(x); after: the norm of x that comes after the layer
void block_forward(const struct model_spec *m, const struct layer_spec *layer, const struct block_weights *b,
                   const void *mixer_weights, const void *state, struct call *call, struct tensor x,
                   const struct linear_input *after);
#endif
