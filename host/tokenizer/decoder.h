// decoder: the "decoder" of a tokenizer.json: token texts -> text.
#ifndef DECODER_H
#define DECODER_H
#include "pretokenize.h"

// One decoder. Sequences are flattened on loading.
struct decode_step {
  enum decode_kind {
    DECODE_JOIN, // no decoder: a space between tokens
    DECODE_BYTE_LEVEL,
    DECODE_BYTE_FALLBACK,
    DECODE_FUSE,
    DECODE_REPLACE,
    DECODE_STRIP,
    DECODE_METASPACE
  } kind;
  struct pattern pattern; // REPLACE
  char *content;          // REPLACE: the replacement; STRIP, METASPACE: a character
  size_t start, stop;     // STRIP: most characters to take off at either end of a token
  enum prepend prepend;   // METASPACE
};
struct decode_steps {
  struct decode_step *items;
  size_t count;
};

// value: the file's "decoder", or NULL. decoders_free() also after a failure.
deltaic_status decoders_load(struct decode_steps *steps, const json_t *value, struct json_reader *r);
void decoders_free(struct decode_steps *steps);
bool decoders_have(const struct decode_steps *steps, enum decode_kind kind);
#endif
