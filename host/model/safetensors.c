// safetensors: reads a file that consists of an 8-byte little-endian length, a JSON object {name: {dtype, shape,
// data_offsets}}, and the data. Gaps between tensors are accepted. Tensors that overlap or point outside the file are
// not.
#include "safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian and is used as it is");

enum { HEADER_LIMIT = 100000000 }; // the format's own limit

// ---------------------------------------------------------------- one tensor

static const struct dtype_row {
  const char *name;
  enum file_dtype dtype;
  uint32_t bytes;
} dtypes[] = {{"F64", FILE_F64, 8},      {"F32", FILE_F32, 4},   {"F16", FILE_F16, 2},       {"BF16", FILE_BF16, 2},
              {"I64", FILE_I64, 8},      {"I32", FILE_I32, 4},   {"U64", FILE_OTHER, 8},     {"U32", FILE_OTHER, 4},
              {"I16", FILE_OTHER, 2},    {"U16", FILE_OTHER, 2}, {"I8", FILE_OTHER, 1},      {"U8", FILE_OTHER, 1},
              {"BOOL", FILE_OTHER, 1},   {"C64", FILE_OTHER, 8}, {"F8_E4M3", FILE_OTHER, 1}, {"F8_E5M2", FILE_OTHER, 1},
              {"F8_E8M0", FILE_OTHER, 1}};

// Bytes of one element; 0 for an unknown dtype, whose data_offsets are then not compared with its shape.
static uint32_t parse_dtype(const char *name, enum file_dtype *out) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
    if (strcmp(dtypes[i].name, name)) continue;
    *out = dtypes[i].dtype;
    return dtypes[i].bytes;
  }
  *out = FILE_OTHER;
  return 0;
}

// Names are untrusted. They are cut so that the message still has room for the reason.
#define TENSOR_FAIL(shard, t, text, ...)                                                                               \
  fail(DELTAIC_BAD_FILE, "%s: tensor %.200s: " text, (shard)->path, (t)->name, __VA_ARGS__)

static bool natural(const json_t *value, uint64_t *out) {
  if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
  *out = (uint64_t)json_integer_value(value);
  return true;
}

// Treats zeros as ones, so that later products of some of the sizes cannot overflow either.
static deltaic_status parse_shape(const struct shard *s, struct file_tensor *t, const json_t *shape,
                                  uint64_t *elements) {
  if (!json_is_array(shape)) return TENSOR_FAIL(s, t, "%s", "shape must be a list of sizes");
  size_t rank = json_array_size(shape);
  if (rank > FILE_RANK) return TENSOR_FAIL(s, t, "has %zu dimensions, more than %d", rank, FILE_RANK);
  uint64_t product = 1;
  bool empty = false;
  t->rank = (int)rank;
  for (size_t i = 0; i < rank; i++) {
    uint64_t size;
    if (!natural(json_array_get(shape, i), &size))
      return TENSOR_FAIL(s, t, "%s", "shape must hold integers that are not negative");
    if (!size_mul(product, size ? size : 1, &product))
      return TENSOR_FAIL(s, t, "%s", "has more elements than can be counted");
    empty |= size == 0;
    t->shape[i] = size;
  }
  *elements = empty ? 0 : product;
  return DELTAIC_OK;
}

// from, data_bytes: where the data begins in the file, and its bytes.
static deltaic_status parse_span(const struct shard *s, struct file_tensor *t, const json_t *offsets, uint64_t from,
                                 uint64_t data_bytes) {
  uint64_t begin, end;
  if (json_array_size(offsets) != 2 || !natural(json_array_get(offsets, 0), &begin) ||
      !natural(json_array_get(offsets, 1), &end))
    return TENSOR_FAIL(s, t, "%s", "data_offsets must be two integers that are not negative");
  if (begin > end)
    return TENSOR_FAIL(s, t, "ends (%llu) before it begins (%llu)", (unsigned long long)end, (unsigned long long)begin);
  if (end > data_bytes)
    return TENSOR_FAIL(s, t, "ends at byte %llu of %llu: the file is cut short or damaged", (unsigned long long)end,
                       (unsigned long long)data_bytes);
  t->at = from + begin;
  t->bytes = end - begin;
  return DELTAIC_OK;
}

static deltaic_status parse_tensor(const struct shard *s, struct file_tensor *t, const json_t *entry, uint64_t from,
                                   uint64_t data_bytes) {
  if (!json_is_object(entry)) return TENSOR_FAIL(s, t, "%s", "must be an object of dtype, shape and data_offsets");
  const char *dtype = t->dtype_name = json_string_value(json_object_get(entry, "dtype"));
  if (!dtype) return TENSOR_FAIL(s, t, "%s", "dtype must be a string");
  uint64_t size = parse_dtype(dtype, &t->dtype), elements = 0, wanted;
  deltaic_status status = parse_shape(s, t, json_object_get(entry, "shape"), &elements);
  if (status) return status;
  if (!size_mul(elements, size, &wanted)) return TENSOR_FAIL(s, t, "%s", "has more bytes than can be counted");
  status = parse_span(s, t, json_object_get(entry, "data_offsets"), from, data_bytes);
  if (status) return status;
  if (size && wanted != t->bytes)
    return TENSOR_FAIL(s, t, "its shape needs %llu bytes of %s, its data_offsets give %llu", (unsigned long long)wanted,
                       dtype, (unsigned long long)t->bytes);
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- one file

static deltaic_status parse_header_text(struct shard *s) {
  const struct file_view *v = &s->input.view;
  if (v->bytes == 0) return fail(DELTAIC_BAD_FILE, "%s: is empty, not a safetensors file", s->path);
  if (v->bytes < 8)
    return fail(DELTAIC_BAD_FILE, "%s: has %llu bytes, too few for a safetensors file", s->path,
                (unsigned long long)v->bytes);
  static const char pointer[] = "version https://git-lfs";
  if (v->bytes >= sizeof pointer && !memcmp(v->data, pointer, sizeof pointer - 1))
    return fail(DELTAIC_BAD_FILE, "%s: is a Git LFS pointer; 'git lfs pull' fetches the file", s->path);
  uint64_t length;
  memcpy(&length, v->data, 8);
  if (length > v->bytes - 8 && v->bytes > 8 && v->data[8] != '{')
    return fail(DELTAIC_BAD_FILE, "%s: is not a safetensors file: it has no valid header", s->path);
  if (length > HEADER_LIMIT)
    return fail(DELTAIC_BAD_FILE, "%s: its header claims %llu bytes, which is more than the format allows", s->path,
                (unsigned long long)length);
  if (length > v->bytes - 8)
    return fail(DELTAIC_BAD_FILE, "%s: its header claims %llu bytes, but only %llu follow its length", s->path,
                (unsigned long long)length, (unsigned long long)(v->bytes - 8));
  deltaic_status status = input_hold(&s->input, 8 + length);
  if (status) return status;
  status = json_parse(s->path, v->data + 8, length, &s->header);
  if (status) return fail(status, "%s (in the safetensors header)", deltaic_last_error());
  if (!json_is_object(s->header)) return fail(DELTAIC_BAD_FILE, "%s: its header must be a JSON object", s->path);
  return DELTAIC_OK;
}

static deltaic_status check_metadata(const struct shard *s) {
  json_t *metadata = json_object_get(s->header, "__metadata__");
  if (metadata && !json_is_object(metadata))
    return fail(DELTAIC_BAD_FILE, "%s: __metadata__ must be an object of strings", s->path);
  const char *key;
  json_t *value;
  json_object_foreach(metadata, key, value) {
    if (!json_is_string(value))
      return fail(DELTAIC_BAD_FILE, "%s: __metadata__: %.200s must be a string", s->path, key);
  }
  return DELTAIC_OK;
}

static int by_place(const void *a, const void *b) {
  const struct file_tensor *x = a, *y = b;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

deltaic_status shard_check_overlap(const struct shard *s, struct file_tensor *tensors, size_t count) {
  qsort(tensors, count, sizeof *tensors, by_place);
  const struct file_tensor *before = NULL;
  for (size_t i = 0; i < count; i++) {
    const struct file_tensor *t = &tensors[i];
    if (t->bytes == 0) continue;
    if (before && t->at < before->at + before->bytes)
      return fail(DELTAIC_BAD_FILE, "%s: tensors %.200s and %.200s overlap", s->path, before->name, t->name);
    before = t;
  }
  return DELTAIC_OK;
}

deltaic_status shard_read(struct shard *s, struct file_tensor **tensors, uint64_t *count) {
  deltaic_status status = parse_header_text(s);
  if (!status) status = check_metadata(s);
  if (status) return status;
  size_t entries = json_object_size(s->header);
  uint64_t bytes = (*count + entries) * sizeof **tensors;
  struct file_tensor *grown = realloc(*tensors, bytes ? bytes : 1);
  if (!grown) return fail_memory("a checkpoint's list of tensors", bytes);
  *tensors = grown;

  uint64_t length, first = *count;
  memcpy(&length, s->input.view.data, 8);
  const char *name;
  json_t *entry;
  json_object_foreach(s->header, name, entry) {
    if (!strcmp(name, "__metadata__")) continue;
    struct file_tensor *t = &grown[*count];
    *t = (struct file_tensor){.name = name};
    status = parse_tensor(s, t, entry, 8 + length, s->input.view.bytes - 8 - length);
    if (status) return status;
    ++*count;
  }
  return shard_check_overlap(s, grown + first, *count - first);
}

// ---------------------------------------------------------------- elements

bool file_tensor_is(const struct file_tensor *t, uint64_t rows, uint64_t cols) {
  if (!cols) return t->rank == 1 && t->shape[0] == rows;
  if (t->rank == 1) return rows == 1 && t->shape[0] == cols;
  if (t->rank == 3)
    return (t->shape[0] == rows && t->shape[1] * t->shape[2] == cols) ||
           (t->shape[0] * t->shape[1] == rows && t->shape[2] == cols);
  return t->rank == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

deltaic_status file_tensor_load(struct file_tensor *t) {
  if (t->data) return DELTAIC_OK;
  if (t->input->status) return t->input->status; // its message is still the last
  void *data = t->bytes < SIZE_MAX ? malloc((size_t)t->bytes + 1) : NULL;
  if (!data) return t->input->status = fail_memory(t->name, t->bytes);
  deltaic_status status = input_read(t->input, t->at, data, t->bytes);
  if (status) {
    free(data);
    return fail(status, "%s (tensor %.200s)", deltaic_last_error(), t->name);
  }
  if (t->change) status = t->change(t, data);
  if (status) {
    free(data);
    return t->input->status = status;
  }
  t->data = data;
  t->loaded = true;
  return DELTAIC_OK;
}

void file_tensor_unload(struct file_tensor *t) {
  if (!t->loaded) return;
  free((void *)t->data);
  t->data = NULL;
  t->loaded = false;
}

// The source may be unaligned, so every element is copied out first.
void file_tensor_f32(const struct file_tensor *t, uint64_t first, uint64_t count, float *out) {
  const char *data = t->data;
  switch (t->dtype) {
  case FILE_F32: memcpy(out, data + first * 4, count * 4); return;
  case FILE_F64:
    for (uint64_t i = 0; i < count; i++) {
      double x;
      memcpy(&x, data + (first + i) * 8, 8);
      out[i] = (float)x;
    }
    return;
  case FILE_F16:
    for (uint64_t i = 0; i < count; i++) {
      uint16_t x;
      memcpy(&x, data + (first + i) * 2, 2);
      out[i] = f16_to_f32(x);
    }
    return;
  case FILE_BF16: // the upper half of a float, widened here so that the loop becomes vector code
    for (uint64_t i = 0; i < count; i++) {
      uint16_t x;
      memcpy(&x, data + (first + i) * 2, 2);
      uint32_t bits = (uint32_t)x << 16;
      memcpy(&out[i], &bits, 4);
    }
    return;
  default: break;
  }
  if (file_dtype_is_blocks(t->dtype)) {
    dtype_decode(file_dtype_kept(t->dtype), data, first, count, out);
    return;
  }
  assert(!"not a float tensor");
}
