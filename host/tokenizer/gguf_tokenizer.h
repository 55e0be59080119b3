// gguf_tokenizer.h: the tokenizer of a GGUF file as the parts of a tokenizer.json.
#ifndef GGUF_TOKENIZER_H
#define GGUF_TOKENIZER_H
#include "bpe.h"
#include "gguf.h"

// What a tokenizer is made of. Texts are borrowed.
struct tokenizer_parts {
  json_t *root; // a tokenizer.json; if it is of a GGUF file, without "vocab" and "merges"
  struct vocabulary_entry *entries;
  struct merge_texts *merges;
  size_t count, merge_count;
};
void tokenizer_parts_free(struct tokenizer_parts *parts); // accepts a zeroed struct

// view: of the file. The caller calls tokenizer_parts_free(), also after a failure. A kind of tokenizer that is not
// supported is refused by name.
deltaic_status gguf_tokenizer_parts(const char *file, const struct gguf *gguf, struct file_view view,
                                    struct tokenizer_parts *out);
// The reverse for the way in which text is split: the name of what tokenizer.json has; NULL: it has none.
const char *gguf_pre_of(const json_t *tokenizer);
#endif
