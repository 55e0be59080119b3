// tensor_file: see tensor_file.h.
#define _POSIX_C_SOURCE 200809L // fileno, strdup
#include "tensor_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void keep_error(struct tensor_file *f) {
  if (!f->status) f->status = fail(DELTAIC_IO, "%s: cannot be written: %s", f->path, strerror(errno));
}

static void keep_memory(struct tensor_file *f) {
  if (!f->status) f->status = fail_memory("a file's header", 0);
}

void tensor_file_begin(struct tensor_file *f, const char *path, json_t *metadata) {
  *f = (struct tensor_file){.path = strdup(path), .header = json_object()};
  if (!f->path || !f->header || (metadata && json_object_set(f->header, "__metadata__", metadata))) keep_memory(f);
  if (f->status) return;
  f->stream = fopen(path, "wbx");
  if (!f->stream) keep_error(f);
}

uint64_t tensor_file_declare(struct tensor_file *f, const char *name, enum file_dtype dtype, int rank,
                             const uint64_t *shape, uint64_t bytes) {
  uint64_t begin = f->bytes;
  if (f->status) return begin;
  if (dtype == FILE_OTHER) {
    f->status = fail(DELTAIC_UNSUPPORTED, "tensor %.200s has a dtype that cannot be copied", name);
    return begin;
  }
  json_t *sizes = json_array();
  for (int i = 0; i < rank; i++) json_array_append_new(sizes, json_integer((json_int_t)shape[i]));
  f->bytes += bytes;
  json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", file_dtype_name(dtype), "shape", sizes, "data_offsets",
                            (json_int_t)begin, (json_int_t)f->bytes);
  if (!entry || json_object_set_new(f->header, name, entry)) keep_memory(f);
  return begin;
}

void tensor_file_write_header(struct tensor_file *f) {
  if (f->status) return;
  char *text = json_dumps(f->header, JSON_COMPACT);
  if (!text) {
    keep_memory(f);
    return;
  }
  uint64_t length = strlen(text), padded = (length + 7) / 8 * 8; // tensors begin at a multiple of 8
  f->data = 8 + padded;
  tensor_file_append(f, &padded, 8);
  tensor_file_append(f, text, length);
  tensor_file_append(f, "       ", padded - length);
  free(text);
}

void tensor_file_append(struct tensor_file *f, const void *data, uint64_t bytes) {
  if (!f->status && bytes && fwrite(data, 1, bytes, f->stream) != bytes) keep_error(f);
}

deltaic_status tensor_file_end(struct tensor_file *f) {
  if (f->stream) {
    if (!f->status && (fflush(f->stream) || fsync(fileno(f->stream)))) keep_error(f);
    if (fclose(f->stream)) keep_error(f);
  }
  deltaic_status status = f->status;
  json_decref(f->header);
  free(f->path);
  *f = (struct tensor_file){0};
  return status;
}
