// safetensors.h: a checkpoint's tensors as views of mapped files: one model.safetensors, or shards with an index.
// Headers are untrusted: every count, offset and product is checked before it is used.
#ifndef SAFETENSORS_H
#define SAFETENSORS_H
#include "file.h"

enum file_dtype { FILE_F64, FILE_F32, FILE_F16, FILE_BF16, FILE_I64, FILE_I32, FILE_OTHER };
enum { FILE_RANK = 8 };

struct file_tensor {
  const char *name;
  enum file_dtype dtype;
  int rank;
  uint64_t shape[FILE_RANK]; // outermost first
  const void *data;          // may be unaligned
  uint64_t bytes;
  bool used; // set by whoever binds it, so that tensors nobody wanted can be reported
};

struct checkpoint; // tensors sorted by name, and the mapped files

// path: a folder, or a .safetensors file.
deltaic_status checkpoint_open(const char *path, struct checkpoint **out);
void checkpoint_close(struct checkpoint *checkpoint); // accepts NULL
// The same for one file's bytes that the caller keeps alive (tests, fuzzing).
deltaic_status checkpoint_parse(const char *name, const void *data, size_t bytes, struct checkpoint **out);
uint64_t checkpoint_count(const struct checkpoint *checkpoint);
struct file_tensor *checkpoint_at(struct checkpoint *checkpoint, uint64_t i);
struct file_tensor *checkpoint_find(struct checkpoint *checkpoint, const char *name); // NULL when it is not there
// printf-style name.
__attribute__((format(printf, 2, 3))) struct file_tensor *checkpoint_findf(struct checkpoint *checkpoint,
                                                                           const char *format, ...);
const char *checkpoint_path(const struct checkpoint *checkpoint); // for messages
// A string of the header's __metadata__, or NULL.
const char *checkpoint_metadata(const struct checkpoint *checkpoint, const char *key);
const char *file_dtype_name(enum file_dtype dtype);
// Elements [first, first + count) as f32; the dtype must be one of the floats.
void file_tensor_f32(const struct file_tensor *t, uint64_t first, uint64_t count, float *out);
#endif
