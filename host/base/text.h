// text.h: a growing string of bytes, and UTF-8 one character at a time.
#ifndef TEXT_H
#define TEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// `failed` stays set once memory or the limit is exhausted. Appending then does nothing, so callers check it once at
// the end.
struct text {
  char *bytes;
  size_t length, capacity;
  size_t limit; // most bytes; 0: none
  bool failed;
};

static inline void text_free(struct text *t) {
  free(t->bytes);
  *t = (struct text){0};
}

static inline void text_append(struct text *t, const char *bytes, size_t n) {
  if (t->failed || n == 0) return;
  if (t->limit && n > t->limit - t->length) {
    t->failed = true;
    return;
  }
  if (n > t->capacity - t->length) {
    size_t capacity = t->capacity < 64 ? 64 : t->capacity;
    while (capacity - t->length < n && capacity <= SIZE_MAX / 4) capacity *= 2;
    char *grown = capacity - t->length < n ? NULL : realloc(t->bytes, capacity);
    t->failed = !grown;
    if (!grown) return;
    t->bytes = grown;
    t->capacity = capacity;
  }
  memcpy(t->bytes + t->length, bytes, n);
  t->length += n;
}

// Whether the text is like the pattern, in which * stands for any bytes.
static inline bool text_like(const char *text, const char *pattern) {
  while (*pattern && *pattern != '*')
    if (*text++ != *pattern++) return false;
  if (!*pattern) return !*text;
  do
    if (text_like(text, pattern + 1)) return true;
  while (*text++);
  return false;
}

// Bytes of the character that begins with `lead`, in valid UTF-8.
static inline size_t utf8_length(char lead) {
  unsigned char c = (unsigned char)lead;
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

// Checks the first character of n >= 1 bytes. Positive: a character of that many bytes. 0: the n bytes are the
// beginning of a character that is cut off. Negative: that many bytes are invalid and are replaced by one U+FFFD
// (Unicode 3.9, "maximal subparts", as in Rust's from_utf8_lossy).
static inline int utf8_check(const char *bytes, size_t n) {
  const unsigned char *b = (const unsigned char *)bytes;
  if (b[0] < 0x80) return 1;
  if (b[0] < 0xC2 || b[0] > 0xF4) return -1;
  int length = (int)utf8_length(bytes[0]);
  for (int i = 1; i < length; i++) {
    if ((size_t)i == n) return 0;
    unsigned char low = 0x80, high = 0xBF; // the second byte excludes overlong forms, surrogates and > U+10FFFF
    if (i == 1) {
      low = b[0] == 0xE0 ? 0xA0 : b[0] == 0xF0 ? 0x90 : low;
      high = b[0] == 0xED ? 0x9F : b[0] == 0xF4 ? 0x8F : high;
    }
    if (b[i] < low || b[i] > high) return -i;
  }
  return length;
}

// Decodes the first character of valid UTF-8.
static inline uint32_t utf8_decode(const char *bytes) {
  const unsigned char *b = (const unsigned char *)bytes;
  switch (utf8_length(bytes[0])) {
  case 1: return b[0];
  case 2: return (b[0] & 31u) << 6 | (b[1] & 63u);
  case 3: return (b[0] & 15u) << 12 | (b[1] & 63u) << 6 | (b[2] & 63u);
  default: return (b[0] & 7u) << 18 | (b[1] & 63u) << 12 | (b[2] & 63u) << 6 | (b[3] & 63u);
  }
}

static inline size_t utf8_encode(uint32_t c, char out[4]) {
  if (c < 0x80) {
    out[0] = (char)c;
    return 1;
  }
  size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = length; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 63));
  out[0] = (char)(lead[length] | c);
  return length;
}
#endif
