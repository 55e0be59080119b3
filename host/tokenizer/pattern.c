// pattern: finds literals and regular expressions in a text. HuggingFace tokenizers writes the expressions for
// Oniguruma; PCRE2 runs them here. Constructs that the two libraries read differently are refused. Each part of a text
// is searched once, so the time is linear in its length.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pattern.h"

#include "list.h"

#include <pcre2.h>

// The limit on the steps of one match. It stops patterns that would need exponential time.
enum { MATCH_LIMIT = 10000000 };

// ---------------------------------------------------------------- loading

// Returns a construct that PCRE2 reads differently. In Oniguruma [a[b]] and [a&&b] are sets and \h is a hex digit.
static const char *foreign_construct(const char *regex) {
  bool set = false;
  for (const char *at = regex; *at; at++) {
    if (at[0] == '\\' && at[1]) {
      if (at[1] == 'h' || at[1] == 'H') return "\\h";
      at++;
    } else if (!set) {
      set = at[0] == '[';
      if (set && at[1] == '^') at++;
      if (set && at[1] == ']') at++; // as the first character of a set, ] is a member
    } else if (at[0] == '[') {
      const char *end = at[1] == ':' ? strstr(at, ":]") : NULL;
      if (!end) return "a set inside a set";
      at = end + 1;
    } else if (at[0] == '&' && at[1] == '&') {
      return "&& in a set";
    } else {
      set = at[0] != ']';
    }
  }
  return NULL;
}

deltaic_status pattern_regex(struct pattern *pattern, const char *regex, const char *where, struct json_reader *r) {
  const char *foreign = foreign_construct(regex);
  if (foreign)
    return fail(DELTAIC_UNSUPPORTED, "%s: %s: %s in the pattern \"%s\" is not supported", r->file, where, foreign,
                regex);
  int code;
  PCRE2_SIZE offset;
  uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  pattern->regex = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, options, &code, &offset, NULL);
  if (!pattern->regex && code == PCRE2_ERROR_HEAP_FAILED) return fail_memory("a pattern", strlen(regex));
  if (!pattern->regex) {
    char text[200] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
    return fail(DELTAIC_BAD_FILE, "%s: %s: the pattern \"%s\" is wrong at character %zu: %s", r->file, where, regex,
                (size_t)offset, text);
  }
  pcre2_jit_compile(pattern->regex, PCRE2_JIT_COMPLETE); // matching is interpreted if no JIT compiler is available
  return DELTAIC_OK;
}

deltaic_status pattern_literal(struct pattern *pattern, const char *literal) {
  pattern->length = strlen(literal);
  pattern->literal = strdup(literal);
  return pattern->literal ? DELTAIC_OK : fail_memory("a pattern", pattern->length + 1);
}

deltaic_status pattern_load(struct pattern *pattern, const json_t *value, const char *where, struct json_reader *r) {
  const char *literal = json_string_value(json_object_get(value, "String"));
  const char *regex = json_string_value(json_object_get(value, "Regex"));
  if (!literal == !regex)
    return fail(DELTAIC_BAD_FILE, "%s: the pattern of %s is neither a String nor a Regex", r->file, where);
  if (regex) return pattern_regex(pattern, regex, where, r);
  if (!*literal) return fail(DELTAIC_UNSUPPORTED, "%s: an empty pattern in %s is not supported", r->file, where);
  return pattern_literal(pattern, literal);
}

void pattern_free(struct pattern *pattern) {
  free(pattern->literal);
  pcre2_code_free(pattern->regex);
  *pattern = (struct pattern){0};
}

// ---------------------------------------------------------------- search

static deltaic_status spans_append(struct spans *spans, size_t begin, size_t end, bool match) {
  deltaic_status status = list_room(&spans->items, spans->count, &spans->capacity, sizeof *spans->items, "the words");
  if (!status) spans->items[spans->count++] = (struct span){begin, end, match};
  return status;
}

void spans_free(struct spans *spans) {
  free(spans->items);
  *spans = (struct spans){0};
}

// Appends the gap before a match and the match.
static deltaic_status spans_match(struct spans *spans, size_t gap, size_t begin, size_t end) {
  deltaic_status status = gap == begin ? DELTAIC_OK : spans_append(spans, gap, begin, false);
  return status ? status : spans_append(spans, begin, end, true);
}

static deltaic_status literal_spans(const struct pattern *pattern, const char *text, size_t length, struct spans *out,
                                    size_t *last) {
  const char *end = text + length, *at = text;
  deltaic_status status = DELTAIC_OK;
  while (!status && (size_t)(end - at) >= pattern->length) {
    at = memchr(at, pattern->literal[0], (size_t)(end - at) - pattern->length + 1);
    if (!at) break;
    if (memcmp(at, pattern->literal, pattern->length) != 0) {
      at++;
      continue;
    }
    size_t begin = (size_t)(at - text);
    status = spans_match(out, *last, begin, begin + pattern->length);
    *last = begin + pattern->length;
    at += pattern->length;
  }
  return status;
}

static int regex_match(const struct pattern *pattern, const char *text, size_t length, size_t start,
                       pcre2_match_data *data, pcre2_match_context *context) {
  // The caller has checked the whole text. Another check for every word would take quadratic time.
  uint32_t options = PCRE2_NO_UTF_CHECK;
  int code = pcre2_match(pattern->regex, (PCRE2_SPTR)text, length, start, options, data, context);
  if (code == PCRE2_ERROR_JIT_STACKLIMIT) // the interpreter keeps its stack on the heap
    code = pcre2_match(pattern->regex, (PCRE2_SPTR)text, length, start, options | PCRE2_NO_JIT, data, context);
  return code;
}

// An empty match counts unless it touches the preceding match (the rule of Rust's onig crate).
static deltaic_status regex_spans(const struct pattern *pattern, const char *text, size_t length, struct spans *out,
                                  size_t *last) {
  pcre2_match_data *data = pcre2_match_data_create_from_pattern(pattern->regex, NULL);
  pcre2_match_context *context = pcre2_match_context_create(NULL);
  deltaic_status status = data && context ? DELTAIC_OK : fail_memory("a match", sizeof(PCRE2_SIZE));
  if (context) pcre2_set_match_limit(context, MATCH_LIMIT);
  bool any = false;
  for (size_t start = 0; !status && start <= length;) {
    int code = regex_match(pattern, text, length, start, data, context);
    if (code == PCRE2_ERROR_NOMATCH) break;
    if (code < 0) {
      status =
          fail(DELTAIC_UNSUPPORTED, "a pattern of the tokenizer takes too much work on this text (PCRE2: %d)", code);
      break;
    }
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(data);
    if (found[0] == found[1] && any && found[0] == *last) {
      start += start < length ? utf8_length(text[start]) : 1;
      continue;
    }
    if (found[0] < *last || found[1] < found[0]) break; // \K can move the start of a match
    status = spans_match(out, *last, found[0], found[1]);
    any = true;
    start = *last = found[1];
  }
  pcre2_match_data_free(data);
  pcre2_match_context_free(context);
  return status;
}

deltaic_status pattern_spans(const struct pattern *pattern, const char *text, size_t length, struct spans *out) {
  size_t last = 0;
  out->count = 0;
  deltaic_status status = pattern->literal ? literal_spans(pattern, text, length, out, &last)
                                           : regex_spans(pattern, text, length, out, &last);
  return status || last == length ? status : spans_append(out, last, length, false);
}

deltaic_status pattern_replace(const struct pattern *pattern, const char *content, const char *text, size_t length,
                               struct text *out) {
  struct spans spans = {0};
  size_t content_length = strlen(content);
  deltaic_status status = length ? pattern_spans(pattern, text, length, &spans) : DELTAIC_OK;
  for (size_t i = 0; !status && i < spans.count; i++) {
    struct span s = spans.items[i];
    text_append(out, s.match ? content : text + s.begin, s.match ? content_length : s.end - s.begin);
  }
  spans_free(&spans);
  return out->failed ? fail_memory("text", out->length) : status;
}
