// pattern.h: a text to find in others: a literal or a regular expression.
#ifndef PATTERN_H
#define PATTERN_H
#include "json.h"
#include "text.h"

struct pcre2_real_code_8; // PCRE2's compiled pattern: its header is needed by pattern.c alone

struct pattern {
  char *literal; // NULL: regex
  size_t length; // of literal, >= 1
  struct pcre2_real_code_8 *regex;
};

// value: {"String": ...} or {"Regex": ...}; where: "normalizer Replace", for messages.
deltaic_status pattern_load(struct pattern *pattern, const json_t *value, const char *where, struct json_reader *r);
// The same of an expression, and of a literal that is not empty.
deltaic_status pattern_regex(struct pattern *pattern, const char *regex, const char *where, struct json_reader *r);
deltaic_status pattern_literal(struct pattern *pattern, const char *literal);
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
#endif
