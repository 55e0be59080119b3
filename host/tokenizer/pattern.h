// pattern.h: declares a pattern to search for, which is a literal or a regular expression.
#ifndef PATTERN_H
#define PATTERN_H
#include "json.h"
#include "text.h"

struct pcre2_real_code_8; // PCRE2's compiled pattern; only pattern.c includes its header

struct pattern {
  char *literal; // NULL: the pattern is a regex
  size_t length; // of the literal, >= 1
  struct pcre2_real_code_8 *regex;
};

// Loads `value`: {"String": ...} or {"Regex": ...}. `where` names the step for messages, e.g. "normalizer Replace".
deltaic_status pattern_load(struct pattern *pattern, const json_t *value, const char *where, struct json_reader *r);
// These load a regular expression and a nonempty literal.
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

// Replaces `out` by spans that cover the text in order: the matches and the gaps between them.
deltaic_status pattern_spans(const struct pattern *pattern, const char *text, size_t length, struct spans *out);
void spans_free(struct spans *spans);
// Appends the text with every match replaced by `content`.
deltaic_status pattern_replace(const struct pattern *pattern, const char *content, const char *text, size_t length,
                               struct text *out);
#endif
