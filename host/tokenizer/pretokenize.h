// pretokenize: declares the steps before merging: normalizers rewrite a text, and pre-tokenizers split it into words.
#ifndef PRETOKENIZE_H
#define PRETOKENIZE_H
#include "steps.h"

// Appends the normalized text. *first says whether the text begins where the caller's text does; it is cleared if the
// first character is removed.
deltaic_status normalize(const struct steps *steps, const char *text, size_t length, bool *first, struct text *out);

// A text that is split into words and added tokens.
struct piece {
  size_t begin, length; // a range of pieces.text
  int32_t id;           // id of an added token; -1: the piece is a word, which is never empty
  bool first;           // the piece begins where the caller's text does
};
struct pieces {
  struct text text;
  struct piece *items;
  size_t count, capacity;
};

// Appends a piece, unless it is an empty word.
deltaic_status pieces_append(struct pieces *pieces, struct piece piece);
void pieces_free(struct pieces *pieces);
deltaic_status pretokenize(const struct steps *steps, struct pieces *pieces);

// Returns the character that represents a byte in a byte-level vocabulary (GPT-2): U+0021 ... U+0143.
uint32_t byte_level_character(unsigned char byte);
// Returns the byte that the character represents, or -1.
int byte_level_byte(uint32_t character);

bool is_space(uint32_t character); // Unicode White_Space
bool is_word(uint32_t character);  // \w: letters, marks, decimal and letter numbers, connectors
#endif
