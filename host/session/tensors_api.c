// tensors_api: the public functions that read the tensors of a file.
#include "checkpoint.h"

#include <stdlib.h>
#include <string.h>

struct deltaic_tensors {
  struct checkpoint *file;
};

deltaic_status deltaic_tensors_open(const char *path, deltaic_tensors **out) {
  if (refuse_null("deltaic_tensors_open", "path,out", path, out)) return DELTAIC_INVALID_ARGUMENT;
  deltaic_tensors *t = calloc(1, sizeof *t);
  if (!t) return fail_memory("a file of tensors", sizeof *t);
  deltaic_status status = checkpoint_open(path, &t->file);
  if (status)
    free(t);
  else
    *out = t;
  return status;
}

void deltaic_tensors_close(deltaic_tensors *t) {
  if (t) checkpoint_close(t->file);
  free(t);
}

uint64_t deltaic_tensors_count(const deltaic_tensors *t) { return t ? checkpoint_count(t->file) : 0; }

static uint64_t count_of(const struct file_tensor *t) {
  uint64_t count = 1; // cannot overflow: safetensors.c has checked the product
  for (int i = 0; i < t->rank; i++) count *= t->shape[i];
  return count;
}

static void describe(const struct file_tensor *t, deltaic_tensor_info *info) {
  *info = (deltaic_tensor_info){.name = t->name, .dtype = t->dtype_name, .rank = t->rank, .count = count_of(t)};
  memcpy(info->shape, t->shape, sizeof info->shape);
}

deltaic_status deltaic_tensors_at(const deltaic_tensors *t, uint64_t i, deltaic_tensor_info *info) {
  if (!t || !info || i >= checkpoint_count(t->file))
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tensors_at: there is no tensor %llu", (unsigned long long)i);
  describe(checkpoint_at(t->file, i), info);
  return DELTAIC_OK;
}

bool deltaic_tensors_find(const deltaic_tensors *t, const char *name, deltaic_tensor_info *info) {
  const struct file_tensor *found = t && name ? checkpoint_find(t->file, name) : NULL;
  if (found && info) describe(found, info);
  return found != NULL;
}

const char *deltaic_tensors_metadata(const deltaic_tensors *t, const char *key) {
  return t && key ? checkpoint_metadata(t->file, key) : NULL;
}

static deltaic_status find_span(const deltaic_tensors *t, const char *name, uint64_t first, uint64_t count,
                                const void *out, const struct file_tensor **found) {
  if (refuse_null("reading a tensor", "tensors,name,out", t, name, out)) return DELTAIC_INVALID_ARGUMENT;
  *found = checkpoint_find(t->file, name);
  if (!*found) return fail(DELTAIC_NOT_FOUND, "%s: has no tensor %.200s", checkpoint_path(t->file), name);
  uint64_t all = count_of(*found);
  if (first <= all && count <= all - first) return DELTAIC_OK;
  return fail(DELTAIC_BAD_SHAPE, "%s: tensor %.200s has %llu elements, not %llu after the first %llu",
              checkpoint_path(t->file), name, (unsigned long long)all, (unsigned long long)count,
              (unsigned long long)first);
}

static deltaic_status fail_dtype(const deltaic_tensors *t, const struct file_tensor *x, const char *wanted) {
  return fail(DELTAIC_UNSUPPORTED, "%s: tensor %.200s is %.40s, not %s", checkpoint_path(t->file), x->name,
              x->dtype_name, wanted);
}

deltaic_status deltaic_tensors_read(const deltaic_tensors *t, const char *name, uint64_t first, uint64_t count,
                                    float *out) {
  const struct file_tensor *x;
  deltaic_status status = find_span(t, name, first, count, out, &x);
  if (status) return status;
  if (x->dtype != FILE_F64 && x->dtype != FILE_F32 && x->dtype != FILE_F16 && x->dtype != FILE_BF16)
    return fail_dtype(t, x, "floats");
  file_tensor_f32(x, first, count, out);
  return DELTAIC_OK;
}

deltaic_status deltaic_tensors_read_integers(const deltaic_tensors *t, const char *name, uint64_t first, uint64_t count,
                                             int32_t *out) {
  const struct file_tensor *x;
  deltaic_status status = find_span(t, name, first, count, out, &x);
  if (status) return status;
  if (x->dtype == FILE_I32) {
    memcpy(out, (const char *)x->data + first * 4, count * 4);
    return DELTAIC_OK;
  }
  if (x->dtype != FILE_I64) return fail_dtype(t, x, "integers");
  for (uint64_t i = 0; i < count; i++) {
    int64_t value;
    memcpy(&value, (const char *)x->data + (first + i) * 8, 8);
    if (value < INT32_MIN || value > INT32_MAX)
      return fail(DELTAIC_BAD_FILE, "%s: tensor %.200s: element %llu is %lld, which does not fit in 32 bits",
                  checkpoint_path(t->file), name, (unsigned long long)(first + i), (long long)value);
    out[i] = (int32_t)value;
  }
  return DELTAIC_OK;
}
