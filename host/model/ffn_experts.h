// ffn_experts.h: a mixture of experts: each token goes through the k of E gated MLPs that a router chooses, and through
// a shared one.
#ifndef FFN_EXPERTS_H
#define FFN_EXPERTS_H
#include "ops.h"

struct ffn;
extern const struct ffn ffn_experts;

struct experts_spec {
  uint32_t E, k;              // experts, and those of a token
  uint32_t F, shared;         // widths of an expert and of the shared one; shared 0: there is none
  bool normalized;            // the weights of a token's experts are divided by their sum
  enum activation activation; // SILU
};
#endif
