// source.h: opens a checkpoint for pruning and finds the layers whose channels can be pruned.
#ifndef SOURCE_H
#define SOURCE_H
#include "arch.h"

// A layer that can be pruned: it has a matrix-valued state and its own projections of keys and queries.
struct source_layer {
  uint32_t layer;
  int H, d, Hv, Dv; // number and size of query and key heads; number and size of value heads
  int steps;        // keys per token (DeltaProduct)
  int blocks;       // Head-in-Head: r; otherwise 1
};

struct source {
  char *path;
  struct checkpoint *checkpoint;
  struct model_spec spec;
  json_t *config;
  struct source_layer *layers;
  int count;            // number of layers, at least 1
  uint64_t fingerprint; // hash of names, shapes, and the first and last bytes of each tensor
};

// Returns UNSUPPORTED if no layer can be pruned. Call source_close() even after a failure.
deltaic_status source_open(const char *path, struct source *out);
void source_close(struct source *s);
// Returns the index of the layer in s->layers, or -1.
int source_find(const struct source *s, uint32_t layer);

// The rows of the layer's q_proj, and of its k_proj for every step, as floats.
struct source_weights {
  float *q, *k; // (H * d, D), (steps * H * d, D)
};
deltaic_status source_read_weights(const struct source *s, int i, struct source_weights *out);
void source_free_weights(struct source_weights *w);

// The tensor of the layer's queries, and the one with step m's keys, which begin at row *first of it.
struct file_tensor *source_queries(const struct source *s, const struct source_layer *l);
struct file_tensor *source_keys(const struct source *s, const struct source_layer *l, int m, uint64_t *first);

// Returns the layer of a tensor of keys or queries, whose rows (H, d) per step are to be pruned, or NULL for any other
// tensor, filters that channels share included. *filters is set if the tensor is a convolution's weight.
const struct source_layer *source_cut_layer(const struct source *s, const char *name, bool *filters);
// Returns the weight of the layer's output projection.
struct file_tensor *source_output(const struct source *s, const struct source_layer *l);

// FNV-1a.
#define HASH_START 0xcbf29ce484222325u
uint64_t hash_add(uint64_t hash, const void *data, size_t bytes);
#endif
