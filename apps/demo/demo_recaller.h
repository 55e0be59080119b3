// demo_recaller.h: declares a constructed one-layer DeltaNet that stores pairs of key and value (docs/demos.md).
#ifndef DEMO_RECALLER_H
#define DEMO_RECALLER_H
#include <stdbool.h>
#include <stdint.h>

struct recaller {
  uint32_t key_size; // d_k
  uint32_t keys;     // key tokens k0, k1, ...
  uint32_t values;   // value tokens v0, v1, ...; d_v
  bool orthogonal;   // keys are unit vectors, at most d_k; otherwise random vectors after the layer's SiLU
  bool additive; // beta is 1.5e-8 instead of 1: in float32 1 - beta is 1, so nothing is erased and S = beta sum k v^T
  uint64_t seed; // seed of the random keys
};

// Writes the checkpoint and returns an exit code.
int recaller_write(const struct recaller *r, const char *folder);

// Token 0 begins a text.
static inline int32_t recaller_key(uint32_t key) { return 1 + (int32_t)key; }
static inline int32_t recaller_value(const struct recaller *r, uint32_t value) {
  return 1 + (int32_t)(r->keys + value);
}
#endif
