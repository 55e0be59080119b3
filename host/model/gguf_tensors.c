// gguf_tensors: the tensors of a GGUF file (gguf.h) as those of any other checkpoint.
#include "gguf.h"
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
  const char *name;
  enum file_dtype dtype;
} dtypes[] = {{"F64", FILE_F64},   {"F32", FILE_F32}, {"F16", FILE_F16},
              {"BF16", FILE_BF16}, {"I64", FILE_I64}, {"I32", FILE_I32}};

// A format of blocks has the same name in GGUF as in the table of formats, in capitals.
static enum file_dtype dtype_of(const struct gguf_type *type) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (!strcmp(dtypes[i].name, type->name)) return dtypes[i].dtype;
  for (enum dtype d = DTYPE_BLOCKS; d < DTYPE_TILES; d++)
    if (!strcasecmp(formats[d].name, type->name)) return (enum file_dtype)(FILE_BLOCKS + (d - DTYPE_BLOCKS));
  return FILE_OTHER;
}

deltaic_status shard_read_gguf(struct shard *s, struct file_tensor **tensors, uint64_t *count) {
  struct gguf gguf;
  deltaic_status status = gguf_read(&s->input, true, &gguf);
  const uint64_t bytes = (*count + gguf.count) * sizeof **tensors;
  struct file_tensor *grown = status ? NULL : realloc(*tensors, bytes ? bytes : 1);
  if (!status && !grown) status = fail_memory("a checkpoint's list of tensors", bytes);
  s->header = json_incref(gguf.keys);
  s->names = json_incref(gguf.names);
  memcpy(s->lists, gguf.lists, sizeof s->lists);
  if (grown) *tensors = grown;
  for (size_t i = 0; grown && i < gguf.count; i++) {
    const struct gguf_tensor *from = &gguf.tensors[i];
    struct file_tensor *to = &grown[*count + i];
    *to = (struct file_tensor){.name = from->name,
                               .dtype = dtype_of(from->type),
                               .dtype_name = from->type->name,
                               .rank = from->rank,
                               .at = from->at,
                               .bytes = from->bytes};
    memcpy(to->shape, from->shape, sizeof from->shape);
  }
  if (!status) status = shard_check_overlap(s, grown + *count, gguf.count);
  if (!status) *count += gguf.count;
  gguf_free(&gguf);
  return status;
}
