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

static const struct integers {
  const char *dtype;
  uint32_t bytes;
  bool sign;
} kinds[] = {{"I64", 8, true},  {"I32", 4, true},  {"I16", 2, true},  {"I8", 1, true},
             {"U64", 8, false}, {"U32", 4, false}, {"U16", 2, false}, {"U8", 1, false}};

static const struct integers *find_integers(const char *dtype) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(kinds[i].dtype, dtype)) return &kinds[i];
  return NULL;
}

// Returns whether it fits in 32 bits.
static bool integer_at(const struct integers *kind, const char *data, int32_t *out) {
  const uint32_t unused = 64 - 8 * kind->bytes;
  uint64_t bits = 0;
  memcpy(&bits, data, kind->bytes); // little-endian, as safetensors.c asserts
  const int64_t value = kind->sign ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
  *out = (int32_t)value;
  return (kind->sign || value >= 0) && value == *out;
}

deltaic_status deltaic_tensors_read_integers(const deltaic_tensors *t, const char *name, uint64_t first, uint64_t count,
                                             int32_t *out) {
  const struct file_tensor *x;
  deltaic_status status = find_span(t, name, first, count, out, &x);
  if (status) return status;
  const struct integers *kind = find_integers(x->dtype_name);
  if (!kind) return fail_dtype(t, x, "integers");
  for (uint64_t i = 0; i < count; i++)
    if (!integer_at(kind, (const char *)x->data + (first + i) * kind->bytes, &out[i]))
      return fail(DELTAIC_BAD_FILE, "%s: tensor %.200s: element %llu does not fit in 32 bits", checkpoint_path(t->file),
                  name, (unsigned long long)(first + i));
  return DELTAIC_OK;
}
