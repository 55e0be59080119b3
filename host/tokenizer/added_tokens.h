// added_tokens.h: tokens that are looked for in a text before merging.
#ifndef ADDED_TOKENS_H
#define ADDED_TOKENS_H
#include "pretokenize.h"

struct added_token {
  char *text;
  size_t length;
  int32_t id;
  bool single_word; // only where no letter or digit touches it
  bool left, right; // takes the white space before, after it
};

// Sorted by text, so that those with a common beginning are neighbours.
struct added_tokens {
  struct added_token *items;
  size_t count;
  size_t begin[257]; // items whose first byte is b are begin[b] ... begin[b + 1]
};

// values: the file's "added_tokens", or NULL. Takes those for text as it stands, normalizers NULL, or those for
// normalized text.
deltaic_status added_load(struct added_tokens *added, const json_t *values, const struct steps *normalizers,
                          struct json_reader *r);
void added_free(struct added_tokens *added);
// Cuts [begin, begin + length) of pieces->text at its added tokens. first: as of a piece.
deltaic_status added_split(const struct added_tokens *added, size_t begin, size_t length, bool first,
                           struct pieces *pieces);
#endif
