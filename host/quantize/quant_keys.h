// quant_keys.h: the keys of the file that is written.
#ifndef QUANT_KEYS_H
#define QUANT_KEYS_H
#include "quantize.h"

// Those of the GGUF file that is read, or what the folder's files say.
deltaic_status quant_write_keys(const struct quant *q, struct gguf_writer *w);
// tokenizer.ggml.* of a tokenizer.json (quant_tokenizer.c). *whole: they do not say all, and the file itself is needed.
// A way of splitting text that has no name there gets that of the family's published models.
deltaic_status quant_tokenizer_keys(const struct quant *q, const json_t *tokenizer, struct gguf_writer *w, bool *whole);
#endif
