// gguf_tools.h: writes GGUF files for tests, one number after the other.
#ifndef GGUF_TOOLS_H
#define GGUF_TOOLS_H
#include <assert.h>
#include <stdint.h>
#include <string.h>

enum { GGUF_ROOM = 8192 };
struct gguf_text {
  char bytes[GGUF_ROOM];
  size_t size;
};

static inline void put(struct gguf_text *g, const void *bytes, size_t size) {
  assert(size <= GGUF_ROOM - g->size);
  memcpy(g->bytes + g->size, bytes, size);
  g->size += size;
}
static inline void put_u32(struct gguf_text *g, uint32_t value) { put(g, &value, 4); }
static inline void put_u64(struct gguf_text *g, uint64_t value) { put(g, &value, 8); }
static inline void put_text(struct gguf_text *g, const char *text) {
  put_u64(g, strlen(text));
  put(g, text, strlen(text));
}

static inline struct gguf_text gguf_begin(uint32_t version, uint64_t tensors, uint64_t keys) {
  struct gguf_text g = {.bytes = "GGUF", .size = 4};
  put_u32(&g, version);
  put_u64(&g, tensors);
  put_u64(&g, keys);
  return g;
}

enum {
  KEY_U8,
  KEY_I8,
  KEY_U16,
  KEY_I16,
  KEY_U32,
  KEY_I32,
  KEY_F32,
  KEY_BOOL,
  KEY_TEXT,
  KEY_ARRAY,
  KEY_U64,
  KEY_I64,
  KEY_F64
};
static inline void put_key(struct gguf_text *g, const char *name, uint32_t type, const void *value, size_t bytes) {
  put_text(g, name);
  put_u32(g, type);
  put(g, value, bytes);
}
static inline void put_key_u32(struct gguf_text *g, const char *name, uint32_t value) {
  put_key(g, name, KEY_U32, &value, 4);
}
static inline void put_key_text(struct gguf_text *g, const char *name, const char *text) {
  put_key(g, name, KEY_TEXT, "", 0);
  put_text(g, text);
}

// Sizes are in the file's order, the contiguous dimension first.
static inline void put_tensor(struct gguf_text *g, const char *name, const uint64_t *sizes, uint32_t rank,
                              uint32_t type, uint64_t offset) {
  put_text(g, name);
  put_u32(g, rank);
  for (uint32_t i = 0; i < rank; i++) put_u64(g, sizes[i]);
  put_u32(g, type);
  put_u64(g, offset);
}

static inline void put_data(struct gguf_text *g, size_t bytes) {
  while (g->size % 32) put(g, "", 1);
  for (size_t i = 0; i < bytes; i++) put(g, &(char){(char)i}, 1);
}
#endif
