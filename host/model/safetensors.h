// safetensors.h: reads the tensors of one file, safetensors or GGUF (gguf.h), as views of it. Headers are untrusted:
// every count, offset and product is checked before use.
#ifndef SAFETENSORS_H
#define SAFETENSORS_H
#include "format.h"
#include "gguf.h"
#include "input.h"
#include "json.h"

// The types up to FILE_BLOCKS_LAST can be weights. The formats of blocks are in the order of enum dtype.
enum file_dtype {
  FILE_F64,
  FILE_F32,
  FILE_F16,
  FILE_BF16,
  FILE_BLOCKS,
  FILE_BLOCKS_LAST = FILE_BLOCKS + DTYPE_TILES - 1 - DTYPE_BLOCKS,
  FILE_I64,
  FILE_I32,
  FILE_OTHER,
};
enum { FILE_RANK = 8 };

static inline bool file_dtype_is_blocks(enum file_dtype t) { return t >= FILE_BLOCKS && t <= FILE_BLOCKS_LAST; }
// The format in which a device keeps a matrix of this type.
static inline enum dtype file_dtype_kept(enum file_dtype t) {
  return t == FILE_F16             ? DTYPE_F16
         : t == FILE_BF16          ? DTYPE_BF16
         : file_dtype_is_blocks(t) ? (enum dtype)(DTYPE_BLOCKS + (t - FILE_BLOCKS))
                                   : DTYPE_F32;
}

struct file_tensor {
  const char *name;
  enum file_dtype dtype;
  const char *dtype_name; // as in the file; any text
  int rank;
  uint64_t shape[FILE_RANK]; // outermost first
  const void *data;          // may be unaligned; NULL: it is in its input, and file_tensor_load() reads it
  uint64_t at, bytes;        // where it is in the file
  size_t shard;              // the file's number
  struct input *input;       // set when all files are open
  bool loaded;               // `data` is to be freed
  bool used;                 // set by whoever binds the tensor, so that unused tensors can be reported
  bool hashed;               // `hash` is that of its name, shape and data
  uint64_t hash;
  uint64_t turn; // of the upload, that needs it
  // Changes the data that file_tensor_load() has read (adapter.h); NULL: nothing does.
  deltaic_status (*change)(const struct file_tensor *t, void *data);
  const void *changed_by;
};

struct shard {
  char *path; // for messages
  struct input input;
  json_t *header;                     // safetensors: owns the tensors' names. GGUF: the keys. NULL: not read yet
  json_t *names;                      // GGUF: owns the tensors' names
  struct gguf_list lists[GGUF_LISTS]; // GGUF: lists of its tokenizer
};

// Checks the file and appends its tensors. The shard keeps its header even after a failure.
deltaic_status shard_read(struct shard *shard, struct file_tensor **tensors, uint64_t *count);
// The same for a GGUF file (gguf_tensors.c).
deltaic_status shard_read_gguf(struct shard *shard, struct file_tensor **tensors, uint64_t *count);
// Sorts tensors by their place in the file and refuses those that overlap.
deltaic_status shard_check_overlap(const struct shard *shard, struct file_tensor *tensors, size_t count);
// Whether the shape is (rows, cols), or (rows) if cols is 0. (rows, a, b) with a b = cols, (a, b, cols) with a b =
// rows, and (cols) if rows is 1 are the same as (rows, cols).
bool file_tensor_is(const struct file_tensor *t, uint64_t rows, uint64_t cols);
// Reads the tensor's data if it is not in memory; not by several threads at once.
deltaic_status file_tensor_load(struct file_tensor *t) INSIDE(file_tensor_load);
void file_tensor_unload(struct file_tensor *t) INSIDE(file_tensor_unload); // what that has read
// Elements [first, first + count) as f32; the dtype must be one that weights can have.
void file_tensor_f32(const struct file_tensor *t, uint64_t first, uint64_t count, float *out) INSIDE(file_tensor_f32);
#endif
