// chat_parts.h: the parts of a conversation that a template has laid out, and how far each may be taken as tokens.
#ifndef CHAT_PARTS_H
#define CHAT_PARTS_H
#include "tokenizer.h"

enum trust {
  TRUST_NONE,     // a user's or system text: it is never an added token
  TRUST_PLAIN,    // a model's text: added tokens count unless they are special, such as <think>
  TRUST_TEMPLATE, // the template's own text: every added token counts
};

// The text belongs to the caller or to the template.
struct chat_part {
  const char *text;
  size_t bytes;
  enum trust trust;
};

struct chat_parts {
  struct chat_part *items;
  size_t count, capacity;
  bool failed; // out of memory
};

// Appends the ids of the joined text. Words may cross parts, so that the ids are those of the whole text unless a part
// spells an added token that it may not. first: the text begins here; false: it continues.
deltaic_status tokenizer_encode_parts(const deltaic_tokenizer *tokenizer, const struct chat_parts *parts, bool first,
                                      struct ids *out);
#endif
