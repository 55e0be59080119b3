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

// vocab: {"text": id}; added: the file's added_tokens, or NULL.
deltaic_status vocabulary_load(struct vocabulary *vocabulary, const json_t *vocab, const json_t *added,
                               struct json_reader *r);
void vocabulary_free(struct vocabulary *vocabulary);
// Returns the id of a text, or -1.
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *text, size_t length);
#endif
