// tensor_file.h: writes a safetensors file front to back, first the header, then each tensor's bytes in order, so that
// the file may be larger than memory.
#ifndef TENSOR_FILE_H
#define TENSOR_FILE_H
#include "file.h"
#include "json.h"

struct tensor_file {
  struct file_writer to;
  json_t *header;        // until it is written
  uint64_t bytes;        // declared so far
  uint64_t data;         // where the tensors begin
  deltaic_status status; // first error; what follows does nothing
};

// metadata: an object of strings, or NULL; not taken. path: to be kept until the end.
void tensor_file_begin(struct tensor_file *f, const char *path, json_t *metadata);
// Declares a tensor, in the order of the file; returns where it will begin, counted from the first tensor.
uint64_t tensor_file_declare(struct tensor_file *f, const char *name, const char *dtype, int rank,
                             const uint64_t *shape, uint64_t bytes);
// After the last declaration.
void tensor_file_write_header(struct tensor_file *f);
void tensor_file_append(struct tensor_file *f, const void *data, uint64_t bytes);
// Must be called even after a failure, which leaves an existing file unchanged.
deltaic_status tensor_file_end(struct tensor_file *f);
#endif
