// quantize.h: writes a model as a GGUF file in other storage formats. A plan lists the tensors of the file, where their
// numbers come from, and their formats. Then each tensor is encoded and appended, one at a time.
#ifndef QUANTIZE_H
#define QUANTIZE_H
#include "arch.h"
#include "gguf_writer.h"

// A row of the table of types: the formats of a model's matrices.
struct quant_type {
  const char *name;
  const char *about;
  enum dtype usual; // of matrices that the rest does not name
  enum dtype more;  // of attention's values and the FFN's last product, in about half of the layers
  enum dtype head;  // of the output head, which may be the embedding
  uint32_t number;  // general.file_type, as llama.cpp counts
};
const struct quant_type *quant_type_at(size_t i); // NULL: there are no more
const struct quant_type *quant_type_find(const char *name);

// A tensor of the file.
struct quant_tensor {
  char *name;
  int rank;
  uint64_t shape[GGUF_RANK]; // outermost first
  bool known;                // it has this role, in this layer
  enum role role;
  uint32_t layer;
  enum dtype dtype;
  enum dtype wanted;           // the format of the type; dtype is another where that needs other widths
  const struct gguf_type *raw; // the bytes are copied as they are, of this type; NULL: the numbers are encoded
  // The tensor of which this is a copy; NULL: the rows come from several, or in another order (quant_qwen.h).
  struct file_tensor *source;
  float plus;                         // added to every element
  bool minus_exp;                     // then x becomes -exp(x)
  const struct row_map *column_order; // the folder's column for one of the file (names.h); NULL: the same
};

struct quant_family; // quant_qwen.h

struct quant {
  const char *path;
  struct checkpoint *checkpoint;
  struct adapter *adapter; // changes the checkpoint's tensors when they are loaded; NULL: none
  struct model_spec spec;
  const struct quant_type *type;
  const struct quant_family *family; // NULL: names and shapes of tensors are the checkpoint's
  struct quant_tensor *tensors;
  size_t count, capacity;
  uint64_t left_out;    // tensors that are not written, since no layer uses them
  char *left_out_first; // the first of them
};

static inline uint64_t quant_columns(const struct quant_tensor *t) { return t->shape[t->rank - 1]; }
static inline uint64_t quant_rows(const struct quant_tensor *t) {
  uint64_t rows = 1;
  for (int i = 0; i + 1 < t->rank; i++) rows *= t->shape[i];
  return rows;
}
// quant_tensors.c. quant_add() appends a tensor, zeroed but for its name; NULL with *status set after a failure.
struct quant_tensor *quant_add(struct quant *q, const char *name, deltaic_status *status);
uint64_t quant_tensor_bytes(const struct quant_tensor *t);
const struct gguf_type *quant_tensor_type(const struct quant_tensor *t);

// The plan. adapter: a folder, or NULL. Call quant_close() even after a failure.
deltaic_status quant_open(const char *path, const char *adapter, const struct quant_type *type, struct quant *out);
void quant_close_files(struct quant *q); // of the model; the plan stays
void quant_close(struct quant *q);       // accepts a zeroed struct
// Chooses every tensor's format (quant_types.c).
void quant_choose(struct quant *q);
#endif
