// quant_tensors: the list of tensors of a plan.
#include "list.h"
#include "quantize.h"

#include <string.h>

struct quant_tensor *quant_add(struct quant *q, const char *name, deltaic_status *status) {
  *status = list_room(&q->tensors, q->count, &q->capacity, sizeof *q->tensors, "the list of tensors");
  char *copy = *status ? NULL : strdup(name);
  if (!*status && !copy) *status = fail_memory("the list of tensors", strlen(name) + 1);
  if (*status) return NULL;
  struct quant_tensor *t = &q->tensors[q->count++];
  *t = (struct quant_tensor){.name = copy};
  return t;
}

const struct gguf_type *quant_tensor_type(const struct quant_tensor *t) {
  return t->raw ? t->raw : gguf_type_named(formats[t->dtype].name);
}

uint64_t quant_tensor_bytes(const struct quant_tensor *t) {
  const struct gguf_type *type = quant_tensor_type(t);
  return quant_rows(t) * (quant_columns(t) / type->values) * type->bytes;
}
