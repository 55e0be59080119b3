// safetensors.h: the tensors of one file, as views of it. Headers are untrusted: every count, offset and product is
// checked before it is used.
#ifndef SAFETENSORS_H
#define SAFETENSORS_H
#include "file.h"
#include "json.h"

enum file_dtype { FILE_F64, FILE_F32, FILE_F16, FILE_BF16, FILE_I64, FILE_I32, FILE_OTHER };
enum { FILE_RANK = 8 };

struct file_tensor {
  const char *name;
  enum file_dtype dtype;
  const char *dtype_name; // the file's own: any text
  int rank;
  uint64_t shape[FILE_RANK]; // outermost first
  const void *data;          // may be unaligned
  uint64_t bytes;
  bool used; // set by whoever binds it, so that tensors nobody wanted can be reported
};

struct shard {
  char *path;            // for messages
  struct file_view view; // mapped when `mapped`, else the caller's
  bool mapped;
  json_t *header; // the tensors' names point into it; NULL until it is read
};

// Checks the file that `view` shows and appends its tensors; the shard keeps its header, also after a failure.
deltaic_status shard_read(struct shard *shard, struct file_tensor **tensors, uint64_t *count);
// Elements [first, first + count) as f32; the dtype must be one of the floats.
void file_tensor_f32(const struct file_tensor *t, uint64_t first, uint64_t count, float *out);
#endif
