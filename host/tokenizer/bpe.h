// bpe.h: byte-pair merging of one word.
#ifndef BPE_H
#define BPE_H
#include "vocabulary.h"

struct merge {
  uint64_t pair; // left id << 32 | right id
  uint32_t rank; // lower merges first
  int32_t id;    // what the two become; -1 for a free slot
};

struct bpe {
  const struct vocabulary *vocabulary;
  struct merge *merges; // (mask + 1) open-addressed
  uint32_t mask;
  int32_t unknown;    // -1: characters without a token are dropped
  int32_t bytes[256]; // ids of "<0x00>" ... "<0xFF>", -1 where missing or without byte fallback
  bool byte_fallback;
  bool fuse_unknown;  // neighbouring unknown characters become one token
  bool ignore_merges; // a word that is a token is that token, whatever the merges say
};

// model: the file's "model". The vocabulary is borrowed.
deltaic_status bpe_load(struct bpe *bpe, const struct vocabulary *vocabulary, const json_t *model,
                        struct json_reader *r);
void bpe_free(struct bpe *bpe);

struct ids {
  int32_t *items;
  size_t count, capacity;
};

// Appends `count` ids; false when out of memory.
bool ids_append(struct ids *ids, const int32_t *items, size_t count);

// Working memory, kept from word to word. All zero to begin with.
struct bpe_scratch {
  struct symbol *symbols;
  struct candidate *heap;
  size_t capacity;
};
void bpe_scratch_free(struct bpe_scratch *scratch);

// Appends the ids of one word (valid UTF-8). O(n log n).
deltaic_status bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word, size_t length,
                          struct ids *out);
#endif
