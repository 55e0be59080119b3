// tensor_file.h: declares a writer of safetensors files. It writes the header, then each tensor's bytes in order, so
// the file may be larger than memory.
#ifndef TENSOR_FILE_H
#define TENSOR_FILE_H
#include "safetensors.h"

struct tensor_file {
  struct file_writer to;
  json_t *header;        // released by tensor_file_end()
  uint64_t bytes;        // bytes of the tensors declared so far
  uint64_t data;         // offset of the first tensor
  deltaic_status status; // the first error; later calls do nothing
};

// metadata: an object of strings, or NULL; the caller keeps its reference. path must stay valid until the end.
void tensor_file_begin(struct tensor_file *f, const char *path, json_t *metadata);
// Declares the next tensor of the file and returns its offset relative to the first tensor.
uint64_t tensor_file_declare(struct tensor_file *f, const char *name, const char *dtype, int rank,
                             const uint64_t *shape, uint64_t bytes);
// Call it after the last declaration.
void tensor_file_write_header(struct tensor_file *f);
void tensor_file_append(struct tensor_file *f, const void *data, uint64_t bytes);
// Call it even after a failure. A failure leaves an existing file unchanged.
deltaic_status tensor_file_end(struct tensor_file *f);
// Converts the numbers to a tensor's format and returns the number of bytes.
size_t tensor_convert(enum file_dtype dtype, const double *w, size_t count, void *out);
// Writes over a part of the file.
deltaic_status tensor_write_at(const char *path, uint64_t offset, const char *data, size_t bytes);
#endif
