// vocabulary.h: text <-> id.
#ifndef VOCABULARY_H
#define VOCABULARY_H
#include "json.h"

// One id of the vocabulary. text is NULL for a hole.
struct token {
  const char *text; // not ended by NUL
  uint32_t length;
  bool model;   // in the model's own vocabulary, so that merging may produce it
  bool special; // left out of decoded text on request
};

struct vocabulary {
  struct token *tokens; // (size)
  int32_t size;
  char *bytes;     // every token's text
  uint32_t *slots; // (mask + 1) open-addressed: id + 1, 0 when free
  uint32_t mask;
};

// vocab: {"text": id}; added: the file's added_tokens, or NULL.
deltaic_status vocabulary_load(struct vocabulary *vocabulary, const json_t *vocab, const json_t *added,
                               struct json_reader *r);
void vocabulary_free(struct vocabulary *vocabulary);
// The id of a text, or -1.
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *text, size_t length);
#endif
