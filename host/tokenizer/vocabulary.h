// vocabulary.h: declares the mapping between token texts and ids.
#ifndef VOCABULARY_H
#define VOCABULARY_H
#include "json.h"

// One id of the vocabulary. text is NULL if no token has the id.
struct token {
  const char *text; // not NUL-terminated
  uint32_t length;
  bool model;   // belongs to the model's own vocabulary, so merging may produce it
  bool special; // decoding can omit it on request
};

struct vocabulary {
  struct token *tokens; // (size)
  int32_t size;
  char *bytes;     // every token's text
  uint32_t *slots; // (mask + 1) entries of an open-addressing hash table: id + 1, or 0 if free
  uint32_t mask;
};

// A token as a file lists it.
struct vocabulary_entry {
  const char *text;
  size_t length;
  int64_t id;
  bool added, special; // added: one of added_tokens, which may name a token that an entry before it has listed
};

// Every id and text is checked. Messages name `file`.
deltaic_status vocabulary_load(struct vocabulary *vocabulary, const struct vocabulary_entry *entries, size_t count,
                               const char *file);
// The entries of a tokenizer.json; the caller frees them. vocab: {"text": id}; added: the file's added_tokens, or NULL.
deltaic_status vocabulary_entries(const json_t *vocab, const json_t *added, struct json_reader *r,
                                  struct vocabulary_entry **entries, size_t *count);
void vocabulary_free(struct vocabulary *vocabulary);
// Returns the id of a text, or -1.
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *text, size_t length);
#endif
