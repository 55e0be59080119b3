// gguf_writer: see gguf_writer.h, and gguf.c for the format.
#include "gguf_writer.h"

#include <stdlib.h>
#include <string.h>

enum { VERSION = 3, ALIGN = 32, TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_TEXT = 8, TYPE_LIST = 9 };

// ---------------------------------------------------------------- bytes in memory

static void add(struct gguf_writer *w, struct gguf_bytes *to, const void *data, uint64_t bytes) {
  if (w->status) return;
  if (bytes > to->capacity - to->count) {
    const size_t capacity = 2 * to->capacity + bytes + 4096;
    char *grown = realloc(to->data, capacity);
    if (!grown) {
      w->status = fail_memory("a GGUF file's header", capacity);
      return;
    }
    to->data = grown;
    to->capacity = capacity;
  }
  if (bytes) memcpy(to->data + to->count, data, bytes);
  to->count += bytes;
}

static void add_u32(struct gguf_writer *w, struct gguf_bytes *to, uint32_t value) { add(w, to, &value, 4); }
static void add_u64(struct gguf_writer *w, struct gguf_bytes *to, uint64_t value) { add(w, to, &value, 8); }

static void add_text(struct gguf_writer *w, struct gguf_bytes *to, const char *text, uint64_t bytes) {
  add_u64(w, to, bytes);
  add(w, to, text, bytes);
}

// ---------------------------------------------------------------- keys

static void begin_key(struct gguf_writer *w, const char *key, uint32_t type) {
  add_text(w, &w->keys, key, strlen(key));
  add_u32(w, &w->keys, type);
  w->key_count++;
}

void gguf_key_text(struct gguf_writer *w, const char *key, const char *text, uint64_t bytes) {
  begin_key(w, key, TYPE_TEXT);
  add_text(w, &w->keys, text, bytes);
}

void gguf_key_u32(struct gguf_writer *w, const char *key, uint32_t value) {
  begin_key(w, key, TYPE_U32);
  add_u32(w, &w->keys, value);
}

void gguf_key_f32(struct gguf_writer *w, const char *key, float value) {
  begin_key(w, key, TYPE_F32);
  add(w, &w->keys, &value, 4);
}

static void add_bool(struct gguf_writer *w, bool value) {
  const char byte = value;
  add(w, &w->keys, &byte, 1);
}

void gguf_key_bool(struct gguf_writer *w, const char *key, bool value) {
  begin_key(w, key, TYPE_BOOL);
  add_bool(w, value);
}

void gguf_key_list(struct gguf_writer *w, const char *key, const json_t *list) {
  const json_t *first = json_array_get(list, 0);
  const uint32_t type = json_is_boolean(first) ? TYPE_BOOL : json_is_integer(first) ? TYPE_I32 : TYPE_TEXT;
  begin_key(w, key, TYPE_LIST);
  add_u32(w, &w->keys, type);
  add_u64(w, &w->keys, json_array_size(list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    if (type == TYPE_BOOL)
      add_bool(w, json_is_true(item));
    else if (type == TYPE_I32)
      add_u32(w, &w->keys, (uint32_t)(int32_t)json_integer_value(item));
    else
      add_text(w, &w->keys, json_string_value(item), json_string_length(item));
  }
}

void gguf_key_bytes(struct gguf_writer *w, const char *bytes, uint64_t count) {
  add(w, &w->keys, bytes, count);
  w->key_count++;
}

// ---------------------------------------------------------------- tensors

static uint64_t padding(uint64_t bytes) { return (ALIGN - bytes % ALIGN) % ALIGN; }

void gguf_declare(struct gguf_writer *w, const char *name, int rank, const uint64_t *shape,
                  const struct gguf_type *type, uint64_t bytes) {
  add_text(w, &w->tensors, name, strlen(name));
  add_u32(w, &w->tensors, (uint32_t)rank);
  for (int i = rank; i-- > 0;) add_u64(w, &w->tensors, shape[i]);
  add_u32(w, &w->tensors, type->number);
  add_u64(w, &w->tensors, w->bytes);
  w->tensor_count++;
  w->bytes += bytes + padding(bytes);
}

static void put(struct gguf_writer *w, const void *data, uint64_t bytes) {
  if (!w->status) w->status = file_append(&w->to, data, bytes);
}

static void pad(struct gguf_writer *w, uint64_t bytes) { put(w, (const char[ALIGN]){0}, padding(bytes)); }

void gguf_writer_begin(struct gguf_writer *w, const char *path) {
  *w = (struct gguf_writer){.status = DELTAIC_OK};
  w->status = file_begin(&w->to, path);
}

void gguf_write_header(struct gguf_writer *w) {
  const uint64_t begin[] = {VERSION, w->tensor_count, w->key_count};
  put(w, "GGUF", 4);
  put(w, &begin[0], 4);
  put(w, &begin[1], 16);
  put(w, w->keys.data, w->keys.count);
  put(w, w->tensors.data, w->tensors.count);
  pad(w, 4 + 4 + 16 + w->keys.count + w->tensors.count);
}

void gguf_append(struct gguf_writer *w, const void *data, uint64_t bytes) {
  put(w, data, bytes);
  w->written += bytes;
}

void gguf_tensor_end(struct gguf_writer *w) {
  pad(w, w->written);
  w->written += padding(w->written);
}

deltaic_status gguf_writer_end(struct gguf_writer *w) {
  if (!w->status && w->written != w->bytes)
    w->status = fail(DELTAIC_INTERNAL, "a GGUF file has %llu bytes of tensors, not %llu",
                     (unsigned long long)w->written, (unsigned long long)w->bytes);
  deltaic_status status = w->to.file.stream ? file_end(&w->to, w->status) : w->status;
  free(w->keys.data);
  free(w->tensors.data);
  *w = (struct gguf_writer){.status = status};
  return status;
}
