// weights.h: maps tensors of the checkpoint to tensors on the device. Binding only declares the tensors, so that their
// size is known before any memory is taken. weights_upload() then allocates, converts and copies. The first error (a
// missing tensor, a wrong shape) is kept, and weights_status() reports it, so that bind functions need no checks.
#ifndef WEIGHTS_H
#define WEIGHTS_H
#include "adapter.h"
#include "arch.h"
#include "arena.h"

// Rows of a file tensor, in the order of their role, then zero rows up to a multiple of `align` (0: none).
struct weight_part {
  struct file_tensor *source; // NULL: left out
  uint32_t rows, align;
  uint32_t zeros;            // rows that `align` adds; set by weights_matrix()
  uint64_t first;            // row of the source, or of the map, that is row 0
  const struct row_map *map; // NULL: the source's rows are the role's
  const struct layer_spec *layer;
  const struct row_map *order; // of an adapter's tensor: applied to a row before the map (names.h); or NULL
  float plus;                  // names.h; this and the next only of vectors
  bool minus_exp;
  struct adapter_pair pair; // what an adapter adds to it
};

// Computes row `row`, of `cols` floats, of a tensor that is not copied from the file. context: the request's own.
typedef void (*weight_row)(const void *context, uint32_t row, uint32_t cols, float *out);

// The reverse for gradients: d (cols) is the gradient of the computed row. Calls give() with the gradient of every part
// that the row was computed from: (part->rows, cols).
typedef void (*weight_give)(void *user, const struct weight_part *part, uint32_t cols, const float *d);
typedef void (*weight_back)(const void *context, uint32_t cols, const float *d, weight_give give, void *user);

// A tensor to be uploaded.
enum { WEIGHT_CONTEXT = 512 };
struct weight_request {
  struct tensor *out;
  uint64_t first_part; // in weights.parts
  int count;
  enum { PARTS_UNDER, PARTS_ALONG, PARTS_TRANSPOSED } layout; // rows below each other, in one row, side by side
  weight_row row;                                             // NULL: the parts are copied
  weight_back back;                                           // of `row`; NULL: it depends on no part
  const char *file;                                           // of computed rows, for messages; NULL: the checkpoint
  const struct tensor *mixed;                                 // `out` consists of these, which have their own requests
  const struct tensor *same;                                  // an equal tensor of an earlier request, which is reused
  union {
    char bytes[WEIGHT_CONTEXT];
    void *aligned;
  } context;
};

// A tensor that the layers of a new model ask for.
struct new_tensor {
  uint32_t layer; // 0 outside the layers
  enum role role; // the first that asks for it
  char name[96];
  uint64_t rows, cols; // cols 0: a vector
  float plus;          // names.h
};

// A model without a checkpoint: `ask` is called with every role's tensor. Roles may share one.
struct new_tensors {
  void (*ask)(void *user, const struct new_tensor *tensor);
  void *user;
  struct file_tensor source; // of all parts; zeroed, since there are no data
};

struct weights {
  struct checkpoint *checkpoint;
  struct new_tensors *made; // of a new model; NULL: there is a checkpoint
  struct adapter *adapter;  // NULL: none
  const struct model_spec *model;
  struct backend *backend; // NULL: sizes are measured, nothing is uploaded
  bool f32;                // all matrices are stored in f32, whatever their format is
  struct weight_request *requests;
  size_t count, capacity;
  struct weight_part *parts; // of all requests
  size_t part_count, part_capacity;
  struct tensor **mixed; // the parts of matrices of several formats
  size_t mixed_count, mixed_capacity;
  struct low_rank **low; // low_rank.h
  size_t low_count, low_capacity;
  struct arena arena;
  uint64_t parameters;  // elements of the requested tensors
  uint64_t fingerprint; // hash of every tensor's name, shape and data, and of config.json
  deltaic_status status;
};

// Whether the checkpoint, or a new model of the family, has a tensor of this role.
bool weights_has(const struct weights *w, uint32_t layer, enum role role);
// A layer's role as a part of shape (rows, cols), or (rows) if cols is 0 (file_tensor_is()). Missing tensors and wrong
// shapes are errors. Marks the tensor as used.
struct weight_part weights_part(struct weights *w, uint32_t layer, enum role role, uint32_t rows, uint32_t cols);
// A role of `items` times `rows` rows, in one tensor or, in older checkpoints, in a list of tensors. Writes at most
// `items` parts and returns their number.
int weights_list(struct weights *w, uint32_t layer, enum role role, uint32_t items, uint32_t rows, uint32_t cols,
                 struct weight_part *parts);
// Whether the role is a list of tensors, and item m of it.
bool weights_lists(const struct weights *w, uint32_t layer, enum role role);
struct weight_part weights_item(struct weights *w, uint32_t layer, enum role role, uint32_t m, uint32_t rows,
                                uint32_t cols);
// Rows first ... first + rows - 1 of a part as f32, `cols` elements each; zeros after a failure to read them, which
// checkpoint_status() then returns.
void weight_part_read(const struct weight_part *p, uint32_t first, uint32_t rows, uint32_t cols, float *out)
    INSIDE(weight_part_read);
// The row of the source that is row `row` of the part.
static inline uint64_t weight_part_row(const struct weight_part *p, uint32_t row) {
  return p->first + row_mapped(p->map, p->layer, row_mapped(p->order, p->layer, row));
}

// out (rows, cols): the parts below each other, in their format if all have the same, else f32. If they differ and some
// have a format of blocks, out is a matrix of several formats (tensor.h). out->low has the parts' pairs.
void weights_matrix(struct weights *w, struct tensor *out, uint32_t cols, const struct weight_part *parts, int count);
// The same in f32, whatever the parts' format is.
void weights_matrix_f32(struct weights *w, struct tensor *out, uint32_t cols, const struct weight_part *parts,
                        int count);
// out (1, n) f32: the parts' elements, one part after the other.
void weights_vector(struct weights *w, struct tensor *out, const struct weight_part *parts, int count);
// The same for a single role.
void weights_bind_matrix(struct weights *w, struct tensor *out, uint32_t layer, enum role role, uint32_t rows,
                         uint32_t cols);
void weights_bind_vector(struct weights *w, struct tensor *out, uint32_t layer, enum role role, uint32_t n);
// out (cols, rows) f32: the transpose of the parts, which are (rows, cols) together.
void weights_transposed(struct weights *w, struct tensor *out, uint32_t cols, const struct weight_part *parts,
                        int count);
// out (rows, cols) f32, computed by `row`. The request copies the `bytes` bytes of context.
void weights_rows(struct weights *w, struct tensor *out, uint32_t rows, uint32_t cols, weight_row row,
                  const void *context, uint64_t bytes);
// Sets the reverse of the row that weights_rows() has just declared.
void weights_rows_back(struct weights *w, weight_back back);

// Adds up the bytes of the declared tensors by their format.
void weights_bytes(const struct weights *w, uint64_t bytes[DTYPE_I32]);
deltaic_status weights_status(const struct weights *w); // the first error, the arena's included
deltaic_status weights_upload(struct weights *w, deltaic_progress progress, void *user) INSIDE(weights_upload);
void weights_free(struct weights *w); // accepts a zeroed struct
#endif
