// added_tokens.h: declares the tokens that are searched for in a text before merging.
#ifndef ADDED_TOKENS_H
#define ADDED_TOKENS_H
#include "pretokenize.h"

struct added_token {
  char *text;
  size_t length;
  int32_t id;
  bool special;     // stands for no text of its own, such as <|im_end|>
  bool single_word; // matches only if no letter or digit is adjacent
  bool left, right; // the match includes the white space before it, after it
};

// The list is sorted by text, so tokens with a common prefix are adjacent.
struct added_tokens {
  struct added_token *items;
  size_t count;
  bool skip_special; // finds the others only
  size_t begin[257]; // items begin[b] ... begin[b + 1] - 1 have the first byte b
};

// Loads from `values` (the file's "added_tokens", or NULL) the tokens that match raw text if normalizers is NULL,
// otherwise those that match normalized text.
deltaic_status added_load(struct added_tokens *added, const json_t *values, const struct steps *normalizers,
                          struct json_reader *r);
void added_free(struct added_tokens *added);
// Splits [begin, begin + length) of pieces->text at its added tokens. `first` has the meaning of piece.first.
deltaic_status added_split(const struct added_tokens *added, size_t begin, size_t length, bool first,
                           struct pieces *pieces);
#endif
