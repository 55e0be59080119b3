// tensor_file: writes a safetensors file in one pass.
#include "tensor_file.h"

#include <errno.h>

#include <stdlib.h>
#include <string.h>

static void keep_memory(struct tensor_file *f) {
  if (!f->status) f->status = fail_memory("a file's header", 0);
}

void tensor_file_begin(struct tensor_file *f, const char *path, json_t *metadata) {
  *f = (struct tensor_file){.header = json_object()};
  if (!f->header || (metadata && json_object_set(f->header, "__metadata__", metadata))) keep_memory(f);
  if (!f->status) f->status = file_begin(&f->to, path);
}

uint64_t tensor_file_declare(struct tensor_file *f, const char *name, const char *dtype, int rank,
                             const uint64_t *shape, uint64_t bytes) {
  uint64_t begin = f->bytes;
  if (f->status) return begin;
  json_t *sizes = json_array();
  for (int i = 0; i < rank; i++) json_array_append_new(sizes, json_integer((json_int_t)shape[i]));
  f->bytes += bytes;
  json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", sizes, "data_offsets", (json_int_t)begin,
                            (json_int_t)f->bytes);
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
  if (!f->status) f->status = file_append(&f->to, data, bytes);
}

deltaic_status tensor_file_end(struct tensor_file *f) {
  deltaic_status status = f->to.file.stream ? file_end(&f->to, f->status) : f->status;
  json_decref(f->header);
  *f = (struct tensor_file){0};
  return status;
}

// ---------------------------------------------------------------- tensors of a file that is there

size_t tensor_convert(enum file_dtype dtype, const double *w, size_t count, void *out) {
  for (size_t i = 0; i < count; i++) {
    if (dtype == FILE_F64) ((double *)out)[i] = w[i];
    if (dtype == FILE_F32) ((float *)out)[i] = (float)w[i];
    if (dtype == FILE_F16) ((uint16_t *)out)[i] = f32_to_f16((float)w[i]);
    if (dtype == FILE_BF16) ((uint16_t *)out)[i] = f32_to_bf16((float)w[i]);
  }
  return count * (dtype == FILE_F64 ? 8 : dtype == FILE_F32 ? 4 : 2);
}

deltaic_status tensor_write_at(const char *path, uint64_t offset, const char *data, size_t bytes) {
  FILE *file = platform_open(path, "r+b");
  if (!file) return fail_errno(path, "written", errno);
  int code = platform_seek(file, offset);
  if (!code && fwrite(data, 1, bytes, file) != bytes) code = errno;
  if (!code) code = platform_sync(file);
  if (fclose(file) && !code) code = errno;
  return code ? fail_errno(path, "written", code) : DELTAIC_OK;
}
