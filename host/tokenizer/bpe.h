// bpe.h: declares byte-pair merging of one word.
#ifndef BPE_H
#define BPE_H
#include "vocabulary.h"

struct merge {
  uint64_t pair; // left id << 32 | right id
  uint32_t rank; // the lowest rank is merged first
  int32_t id;    // id of the merged token; -1: the entry is free
};

struct bpe {
  const struct vocabulary *vocabulary;
  struct merge *merges; // (mask + 1) entries of an open-addressing hash table
  uint32_t mask;
  int32_t unknown;    // -1: characters without a token are dropped
  int32_t bytes[256]; // ids of "<0x00>" ... "<0xFF>"; -1: the token is missing or byte_fallback is false
  bool byte_fallback;
  bool fuse_unknown;  // adjacent unknown characters become one token
  bool ignore_merges; // a word that is itself a token is not split or merged
};

// The texts of a merge as a file lists them, in the order of their ranks. left NULL: a line that is no merge.
struct merge_texts {
  const char *left, *right;
  size_t left_length, right_length;
};

// Loads the file's "model" and its merges. The vocabulary is borrowed.
deltaic_status bpe_load(struct bpe *bpe, const struct vocabulary *vocabulary, const json_t *model,
                        const struct merge_texts *merges, size_t count, struct json_reader *r);
// The merges of a tokenizer.json's model; the caller frees them.
deltaic_status bpe_merges(const json_t *model, struct json_reader *r, struct merge_texts **merges, size_t *count);
// Cuts "a b". False: the text is not of this form.
bool merge_cut(const char *text, size_t length, struct merge_texts *out);
void bpe_free(struct bpe *bpe);

struct ids {
  int32_t *items;
  size_t count, capacity;
};

// Appends `count` ids. It returns false if memory runs out.
bool ids_append(struct ids *ids, const int32_t *items, size_t count);

// Working memory that is reused for every word. The caller initializes it to zero.
struct bpe_scratch {
  struct symbol *symbols;
  struct candidate *heap;
  size_t capacity;
};
void bpe_scratch_free(struct bpe_scratch *scratch);

// Appends the ids of one word, which must be valid UTF-8. The time is O(n log n).
deltaic_status bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word, size_t length,
                          struct ids *out);
#endif
