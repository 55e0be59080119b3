// tokenizer.h: declares the parts of a deltaic_tokenizer that other files and the tests need.
#ifndef TOKENIZER_H
#define TOKENIZER_H
#include "bpe.h"
#include "file.h"
#include "pretokenize.h"

// Opens a tokenizer from memory, like deltaic_tokenizer_open(). `name` is the file name for messages.
deltaic_status tokenizer_parse(const char *json, size_t bytes, const char *name, deltaic_tokenizer **out);
// The tokenizer of a GGUF file, from its keys (gguf.h). view: of the file.
struct gguf;
deltaic_status tokenizer_of_gguf(const struct gguf *gguf, struct file_view view, const char *name,
                                 deltaic_tokenizer **out);
// Appends to `out` (all zero) the added tokens of a text and its words before merging.
deltaic_status tokenizer_split(const deltaic_tokenizer *tokenizer, const char *text, size_t bytes, struct pieces *out);
// Returns NULL if no token has the id.
const struct token *tokenizer_token(const deltaic_tokenizer *tokenizer, int32_t id);
const struct steps *tokenizer_decoders(const deltaic_tokenizer *tokenizer);
#endif
