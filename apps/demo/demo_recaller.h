// demo_recaller: a one-layer DeltaNet that remembers pairs of a key and a value, by construction (docs/demos.md).
#ifndef DEMO_RECALLER_H
#define DEMO_RECALLER_H
#include <stdbool.h>
#include <stdint.h>

struct recaller {
  uint32_t key_size; // d_k
  uint32_t keys;     // key tokens k0, k1, ...
  uint32_t values;   // value tokens v0, v1, ...; d_v
  bool orthogonal;   // keys are the unit vectors, at most d_k of them; else random, as the layer's SiLU leaves them
  bool additive; // beta 1.5e-8 in place of 1: in float32 1 - beta is 1, so that nothing is erased: S = beta sum k v^T
  uint64_t seed; // of random keys
};

// Writes the checkpoint; an exit code.
int recaller_write(const struct recaller *r, const char *folder);

// Token 0 begins a text.
static inline int32_t recaller_key(uint32_t key) { return 1 + (int32_t)key; }
static inline int32_t recaller_value(const struct recaller *r, uint32_t value) {
  return 1 + (int32_t)(r->keys + value);
}
#endif
