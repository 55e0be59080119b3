// pretokenize: what happens to text before merging: normalizers rewrite it, pre-tokenizers cut it into words.
#ifndef PRETOKENIZE_H
#define PRETOKENIZE_H
#include "steps.h"

// Appends the normalized text. first: whether the text begins where the caller's text does; cleared when its first
// character goes.
deltaic_status normalize(const struct steps *steps, const char *text, size_t length, bool *first, struct text *out);

// Text cut into words and added tokens.
struct piece {
  size_t begin, length; // in pieces.text
  int32_t id;           // an added token; -1: a word, never empty
  bool first;           // begins where the caller's text does
};
struct pieces {
  struct text text;
  struct piece *items;
  size_t count, capacity;
};

// Appends a piece; an empty word is left out.
deltaic_status pieces_append(struct pieces *pieces, struct piece piece);
void pieces_free(struct pieces *pieces);
deltaic_status pretokenize(const struct steps *steps, struct pieces *pieces);

// The characters that stand for bytes in a byte-level vocabulary (GPT-2): U+0021 ... U+0143.
uint32_t byte_level_character(unsigned char byte);
// The byte of such a character, or -1.
int byte_level_byte(uint32_t character);

bool is_space(uint32_t character); // Unicode White_Space
bool is_word(uint32_t character);  // \w: letters, marks, decimal and letter numbers, connectors
#endif
