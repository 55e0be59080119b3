// gguf_tokenizer.h: the tokenizer of a GGUF file as a tokenizer.json.
#ifndef GGUF_TOKENIZER_H
#define GGUF_TOKENIZER_H
#include "json.h"

// keys: of the file (gguf.h). The caller releases *out with json_decref(). A kind of tokenizer that is not supported is
// refused by name.
deltaic_status gguf_tokenizer_json(const char *file, const json_t *keys, json_t **out);
// The reverse for the way in which text is split: the name of what tokenizer.json has; NULL: it has none.
const char *gguf_pre_of(const json_t *tokenizer);
#endif
