// steps.h: declares the steps of a tokenizer.json: normalizers and pre-tokenizers, which run on a text before merging,
// and decoders, which run on token texts.
#ifndef STEPS_H
#define STEPS_H
#include "pattern.h"

// One normalizer, pre-tokenizer or decoder. Loading flattens sequences and splits compound steps.
struct step {
  enum step_kind {
    // normalizers: text -> text
    STEP_PREPEND,
    STEP_REPLACE,
    STEP_UNICODE,
    STEP_LOWERCASE,
    STEP_STRIP,
    STEP_STRIP_ACCENTS,
    // pre-tokenizers: pieces -> pieces
    STEP_SPLIT,
    STEP_PREFIX_SPACE,
    STEP_BYTE_LEVEL,
    STEP_METASPACE,
    // decoders: token texts -> text
    DECODE_JOIN, // no decoder: puts a space between tokens
    DECODE_BYTE_LEVEL,
    DECODE_BYTE_FALLBACK,
    DECODE_FUSE,
    DECODE_REPLACE,
    DECODE_STRIP,
    DECODE_METASPACE
  } kind;
  struct pattern pattern; // REPLACE, SPLIT; METASPACE: the space to replace
  char *content;      // REPLACE: the replacement; PREPEND; METASPACE: the mark of a space; DECODE_STRIP: a character
  int form;           // UNICODE: utf8proc options
  bool left, right;   // STEP_STRIP
  size_t start, stop; // DECODE_STRIP: the most characters to remove at the start and end of a token
  bool invert;        // SPLIT: the text between the matches is the delimiter
  enum behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS } behavior; // SPLIT
  enum prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } prepend;                            // METASPACE
};
struct steps {
  struct step *items;
  size_t count;
};

// value: the file's "normalizer", "pre_tokenizer" or "decoder", or NULL. Call steps_free() even after a failure.
deltaic_status normalizers_load(struct steps *steps, const json_t *value, struct json_reader *r);
deltaic_status pretokenizers_load(struct steps *steps, const json_t *value, struct json_reader *r);
deltaic_status decoders_load(struct steps *steps, const json_t *value, struct json_reader *r);
void steps_free(struct steps *steps);
bool steps_have(const struct steps *steps, enum step_kind kind);
#endif
