// adapter.h: LoRA adapters in PEFT's format, a folder with adapter_config.json and adapter_model.safetensors. They are
// merged into a checkpoint's tensors when these are read: W = W0 + s B A. Tensors that are stored whole replace those
// of the checkpoint.
#ifndef ADAPTER_H
#define ADAPTER_H
#include "checkpoint.h"

struct adapter;

// Sets what changes the tensors of `base`, none of which is in use yet. After a failure *out is NULL.
deltaic_status adapter_open(const char *folder, struct checkpoint *base, struct adapter **out);
void adapter_close(struct adapter *a); // accepts NULL; no tensor of the checkpoint is read afterwards
// w (rows, cols) += s B A, with A (rank, cols) and B (rows, rank). Every program adds in this order, so that merged
// checkpoints and adapters give the same bits.
struct adapter_product {
  uint64_t rows, cols, rank;
  const float *A, *B;
  float s;
};
void adapter_add(const struct adapter_product *p, float *w) INSIDE(adapter_add);
#endif
