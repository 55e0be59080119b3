// ffn_dense.h: the gated MLP of one layer: down (act(gate x) * (up x)).
#ifndef FFN_DENSE_H
#define FFN_DENSE_H
#include "ops.h"

struct ffn;
extern const struct ffn ffn_dense;

struct dense_spec {
  uint32_t F;                 // width
  enum activation activation; // SILU or POWLU
};
#endif
