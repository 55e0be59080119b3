// ffn.h: the interface of an FFN, which treats each token by itself after the mixer. Like a mixer, it is a table of
// functions over its own spec (sizes, from arch) and weights (tensors on the device). block.c never asks which FFN it
// has.
#ifndef FFN_H
#define FFN_H
#include "mixer.h"

struct ffn {
  size_t weights_bytes;                // of the struct below
  uint32_t (*width)(const void *spec); // elements per token between its products
  // Declares the weights that the layer needs from the checkpoint. D: the model's width.
  void (*bind)(const void *spec, uint32_t layer, uint32_t D, struct weights *w, void *weights);
  // Adds to what the model's info has of experts; NULL: the FFN has none.
  void (*describe)(const void *spec, const void *weights, uint32_t D, deltaic_model_info *info);
  // y (T, D) = ffn(h), h (T, D)
  void (*forward)(const void *spec, const void *weights, const struct call *call, struct tensor y, struct tensor h);
};
#endif
