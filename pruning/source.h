// source.h: opens a checkpoint for pruning and finds the layers whose channels can be pruned.
#ifndef SOURCE_H
#define SOURCE_H
#include "arch.h"

// A layer whose keys and queries can be cut: one with a matrix-valued state and projections of its own for them.
struct source_layer {
  uint32_t layer;
  int H, d, Hv, Dv; // query and key heads, their channels; value heads, their channels
  int steps;        // keys a token (DeltaProduct)
  int blocks;       // Head-in-Head: r; else 1
};

struct source {
  char *path;
  struct checkpoint *checkpoint;
  struct model_spec spec;
  json_t *config;
  struct source_layer *layers;
  int count;            // of them, at least 1
  uint64_t fingerprint; // of names, shapes, and both ends of each tensor's data
};

// UNSUPPORTED when no layer can be pruned. Close it even after a failure.
deltaic_status source_open(const char *path, struct source *out);
void source_close(struct source *s);
// Its position in s->layers, or -1.
int source_find(const struct source *s, uint32_t layer);

// Rows of the layer's q_proj, and of its k_proj for every step, as floats.
struct source_weights {
  float *q, *k; // (H * d, D), (steps * H * d, D)
};
deltaic_status source_read_weights(const struct source *s, int i, struct source_weights *out);
void source_free_weights(struct source_weights *w);

// A tensor of keys or queries: rows are `blocks` times (H, d), to be cut. NULL: any other tensor. *filters: it is a
// convolution's weight.
const struct source_layer *source_cut_layer(const struct source *s, const char *name, bool *filters);
// The weight of the layer's output projection.
struct file_tensor *source_output(const struct source *s, const struct source_layer *l);

// FNV-1a.
#define HASH_START 0xcbf29ce484222325u
uint64_t hash_add(uint64_t hash, const void *data, size_t bytes);
#endif
