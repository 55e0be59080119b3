// ffn.h: what a layer computes of each token alone, after its mixer. As a mixer, it is a table of functions over its
// own spec (sizes, from arch) and weights (tensors on the device); block.c never asks which one it has.
#ifndef FFN_H
#define FFN_H
#include "mixer.h"

struct ffn {
  size_t weights_bytes;                // of the struct below
  uint32_t (*width)(const void *spec); // numbers a token between its products
  // Declares what the layer needs of the checkpoint. D: the model's width.
  void (*bind)(const void *spec, uint32_t layer, uint32_t D, struct weights *w, void *weights);
  // y (T, D) = ffn(h), h (T, D)
  void (*forward)(const void *spec, const void *weights, const struct call *call, struct tensor y, struct tensor h);
};
#endif
