// adapter.h: LoRA adapters in PEFT's format, a folder with adapter_config.json and adapter_model.safetensors, which
// name the tensors of a model's folder. If the model is a folder, its tensors are changed when they are read: W = W0 +
// s B A, where a tensor that the adapter stores whole replaces W0. If it is a GGUF file, its blocks stay as they are:
// layers ask for what the adapter has for a role, and A and B become separate weights (weights.h).
#ifndef ADAPTER_H
#define ADAPTER_H
#include "names.h"

struct adapter;

// base: the model, none of whose tensors is in use yet; a folder's are changed from here on. folder and base must stay
// valid. After a failure *out is NULL.
deltaic_status adapter_open(const char *folder, struct checkpoint *base, struct adapter **out);
void adapter_close(struct adapter *a); // accepts NULL; no tensor of the checkpoint is read afterwards
// Refuses to merge adapters into a GGUF file.
deltaic_status adapter_check_merged(const char *model) INSIDE(adapter_check_merged);

// Of W = W0 + s B A: A (rank, columns), B (rows, rank).
struct adapter_pair {
  struct file_tensor *A, *B;     // NULL: none
  const struct row_map *order;   // from the role's row in the file to that in the model's folder; NULL: the same
  const struct row_map *rows;    // from there to the row of B; NULL: the same
  const struct row_map *columns; // from the role's column in the file to that of A; NULL: the same
  float s;
  bool swapped; // of an embedding: A is the file's B, transposed, and B its A: A (rank, rows), B (columns, rank)
};

// What a layer of a GGUF file asks for: a role of (rows, cols), or (rows) if cols is 0. base: its tensor in the file.
struct adapter_ask {
  const struct named_tensor *base;
  const struct names *names; // of the layer in the file
  const struct layer_spec *spec;
  uint32_t layer;
  enum role role;
  int64_t item; // of a role that is a list; else -1
  uint32_t rows, cols;
};
// Finds *whole, which replaces the base (row_order and then `rows` map the role's rows to its own), *pair, both or
// neither. If the model is a folder: neither.
deltaic_status adapter_find(struct adapter *a, const struct adapter_ask *ask, struct named_tensor *whole,
                            struct adapter_pair *pair);
// Fails if nothing has asked for some tensor of the adapter, and names the tensor.
deltaic_status adapter_leftovers(struct adapter *a);
// Adds the adapter to the hash of a GGUF file's tensors, which it leaves unchanged. If the model is a folder: nothing.
deltaic_status adapter_fingerprint(struct adapter *a, uint64_t *fingerprint);

// w (rows, cols) += s B A, with A (rank, cols) and B (rows, rank). Every program adds in this order, so that merged
// checkpoints and adapters give the same bits.
struct adapter_product {
  uint64_t rows, cols, rank;
  const float *A, *B;
  float s;
};
void adapter_add(const struct adapter_product *p, float *w) INSIDE(adapter_add);
#endif
