// probe.h: hands activations to a caller while a model runs. What is asked for is read back on the spot: the recording
// is run up to there and begun again, so layers only say where their tensors are.
#ifndef PROBE_H
#define PROBE_H
#include "ops.h"

struct probe {
  uint32_t kinds; // 0: nothing is asked for
  deltaic_probe_function function;
  void *user;
  // Of the call in progress:
  const atomic_bool *cancel;
  uint64_t position; // of the slice's first token
  uint32_t tokens;   // of the slice
  int32_t layer;
  deltaic_probed sizes; // heads ... value_size of the layer
  float *data, *kept;   // room for one tensor each; kept: the residual stream while the mixer's output is taken
  uint64_t data_bytes, kept_bytes;
  deltaic_status status; // first error; nothing is handed out after it
};

static inline bool probe_wants(const struct probe *p, deltaic_probe_kind kind) { return p && (p->kinds & kind) != 0; }

static inline void probe_layer(struct probe *p, uint32_t layer) {
  p->layer = (int32_t)layer;
  p->sizes = (deltaic_probed){0};
}

// Runs what is recorded, reads t, calls back. rows x cols: its shape as the caller sees it, of the same size as t.
void probe_tensor(struct probe *p, struct recorder *c, deltaic_probe_kind kind, struct tensor t, size_t rows,
                  size_t cols);
// Brackets a mixer's forward, which adds to x: sets x aside and zeroes it, then hands x out and puts the sum back.
void probe_output_begin(struct probe *p, struct recorder *c, struct tensor x);
void probe_output_end(struct probe *p, struct recorder *c, struct tensor x);
void probe_free(struct probe *p);
#endif
