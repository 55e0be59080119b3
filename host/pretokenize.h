// pretokenize: what happens to text before merging: normalizers rewrite it, pre-tokenizers cut it into words.
#ifndef PRETOKENIZE_H
#define PRETOKENIZE_H
#include "json.h"
#include "text.h"

struct pcre2_real_code_8; // PCRE2's compiled pattern: its header is needed by pretokenize.c alone

// A text to find: literal or regular expression.
struct pattern {
  char *literal; // NULL: regex
  size_t length; // of literal, >= 1
  struct pcre2_real_code_8 *regex;
};

// value: {"String": ...} or {"Regex": ...}; where: "normalizer Replace", for messages.
deltaic_status pattern_load(struct pattern *pattern, const json_t *value, const char *where, struct json_reader *r);
void pattern_free(struct pattern *pattern);

struct span {
  size_t begin, end;
  bool match;
};
struct spans {
  struct span *items;
  size_t count, capacity;
};

// Replaces `out` by spans that cover the text in order: matches and what lies between them.
deltaic_status pattern_spans(const struct pattern *pattern, const char *text, size_t length, struct spans *out);
void spans_free(struct spans *spans);
// Appends the text with every match replaced.
deltaic_status pattern_replace(const struct pattern *pattern, const char *content, const char *text, size_t length,
                               struct text *out);

// One normalizer or pre-tokenizer. Sequences are flattened, and compound ones taken apart, on loading.
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
    STEP_METASPACE
  } kind;
  struct pattern pattern; // REPLACE, SPLIT; METASPACE: the space to replace
  char *content;          // REPLACE: the replacement; PREPEND; METASPACE: what stands for a space
  int form;               // UNICODE: utf8proc options
  bool left, right;       // STRIP
  bool invert;            // SPLIT: what lies between the matches is the delimiter
  enum behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS } behavior; // SPLIT
  enum prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } prepend;                            // METASPACE
};
struct steps {
  struct step *items;
  size_t count;
};

// value: the file's "normalizer" or "pre_tokenizer", or NULL. steps_free() also after a failure.
deltaic_status normalizers_load(struct steps *steps, const json_t *value, struct json_reader *r);
deltaic_status pretokenizers_load(struct steps *steps, const json_t *value, struct json_reader *r);
// What a Metaspace pre-tokenizer or decoder says. *mark is the caller's, also after a failure.
deltaic_status metaspace_load(char **mark, enum prepend *prepend, const json_t *value, struct json_reader *r);
void steps_free(struct steps *steps);
bool steps_have(const struct steps *steps, enum step_kind kind);

// Appends the normalized text. first: whether the text begins where the caller's text does; cleared when its first
// character goes.
deltaic_status normalize(const struct steps *steps, const char *text, size_t length, bool *first, struct text *out);

// Text cut into words and added tokens.
struct piece {
  size_t begin, length; // in pieces.text
  int32_t id;           // an added token; -1: a word, never empty
  bool first;           // begins where the caller's text does
};
struct pieces {
  struct text text;
  struct piece *items;
  size_t count, capacity;
};

// Appends a piece; an empty word is left out.
deltaic_status pieces_append(struct pieces *pieces, struct piece piece);
void pieces_free(struct pieces *pieces);
deltaic_status pretokenize(const struct steps *steps, struct pieces *pieces);

// The characters that stand for bytes in a byte-level vocabulary (GPT-2): U+0021 ... U+0143.
uint32_t byte_level_character(unsigned char byte);
// The byte of such a character, or -1.
int byte_level_byte(uint32_t character);

bool is_space(uint32_t character); // Unicode White_Space
bool is_word(uint32_t character);  // \w: letters, marks, decimal and letter numbers, connectors
#endif
