// hash.h: a fast 64-bit checksum: FNV-1a on four words in parallel, so that it is as fast as memory. It detects damage
// and distinguishes models; it does not protect against forgery.
#ifndef HASH_H
#define HASH_H
#include <stdint.h>
#include <string.h>

#define HASH_BEGIN 0xcbf29ce484222325ull

static inline uint64_t hash_word(uint64_t h, uint64_t word) {
  h = (h ^ word) * 0x100000001b3ull;
  return h ^ h >> 32; // a word's high bits affect the low ones
}

static inline uint64_t hash_bytes(uint64_t h, const void *data, uint64_t bytes) {
  const unsigned char *p = data;
  uint64_t a = h, b = h + 1, c = h + 2, d = h + 3, words[4]; // not an array: gcc -O2 makes slow vectors of it
  for (; bytes >= sizeof words; bytes -= sizeof words, p += sizeof words) {
    memcpy(words, p, sizeof words);
    a = hash_word(a, words[0]);
    b = hash_word(b, words[1]);
    c = hash_word(c, words[2]);
    d = hash_word(d, words[3]);
  }
  memset(words, 0, sizeof words);
  if (bytes) memcpy(words, p, bytes);
  const uint64_t lanes[4] = {a, b, c, d};
  for (int i = 0; i < 4; i++) h = hash_word(hash_word(h, lanes[i]), words[i]);
  return hash_word(h, bytes);
}
#endif
