// safetensors.h: reads the tensors of one file, as views of it. Headers are untrusted: every count, offset and product
// is checked before use.
#ifndef SAFETENSORS_H
#define SAFETENSORS_H
#include "file.h"
#include "json.h"

enum file_dtype { FILE_F64, FILE_F32, FILE_F16, FILE_BF16, FILE_I64, FILE_I32, FILE_OTHER };
enum { FILE_RANK = 8 };

struct file_tensor {
  const char *name;
  enum file_dtype dtype;
  const char *dtype_name; // as in the file; any text
  int rank;
  uint64_t shape[FILE_RANK]; // outermost first
  const void *data;          // may be unaligned
  uint64_t bytes;
  bool used; // set by whoever binds the tensor, so that unused tensors can be reported
};

struct shard {
  char *path;            // for messages
  struct file_view view; // of mapped memory if `mapped`, else of the caller's
  bool mapped;
  json_t *header; // owns the tensors' names; NULL: not read yet
};

// Checks the file in `view` and appends its tensors. The shard keeps its header even after a failure.
deltaic_status shard_read(struct shard *shard, struct file_tensor **tensors, uint64_t *count);
// Elements [first, first + count) as f32; the dtype must be a float.
void file_tensor_f32(const struct file_tensor *t, uint64_t first, uint64_t count, float *out);
#endif
