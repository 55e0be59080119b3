// pretokenize: the normalizers and pre-tokenizers of a tokenizer.json, with the results of HuggingFace tokenizers.
// Regular expressions are written for Oniguruma there and run by PCRE2 here; constructs that the two read differently
// are refused. Splitting never looks at a text twice, so that long texts take linear time.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pretokenize.h"

#include <pcre2.h>
#include <utf8proc.h>

// The words of GPT-2, which the ByteLevel pre-tokenizer implies.
static const char gpt2_words[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
// \w of Rust's regex crate: PCRE2's is narrower.
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200C}\\x{200D}\\x{24B6}-\\x{24E9}"
// White_Space: \s of PCRE2 has U+180E too.
#define SPACE                                                                                                          \
  "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

// Steps that a match may take. It ends patterns that would need exponential time.
enum { MATCH_LIMIT = 10000000 };
// Steps of a tokenizer, and how far normalizers may lengthen a text: a file could double it with every step.
enum { MAX_STEPS = 64, MAX_GROWTH = 64 };

// ---------------------------------------------------------------- characters

bool is_space(uint32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_mark(uint32_t c) {
  utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool is_word(uint32_t c) {
  utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC ||
         c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9);
}

// The bytes that stand for themselves are the visible characters of Latin-1. The others, in order, take the
// characters from U+0100 on.
static bool is_visible(unsigned b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; }

uint32_t byte_level_character(unsigned char byte) {
  if (is_visible(byte)) return byte;
  return byte <= 0x20 ? 0x100u + byte : byte <= 0xA0 ? 0x121u + (byte - 0x7Fu) : 0x143u;
}

int byte_level_byte(uint32_t c) {
  if (c < 0x100) return is_visible(c) ? (int)c : -1;
  if (c <= 0x120) return (int)(c - 0x100);
  if (c <= 0x142) return (int)(c - 0x121 + 0x7F);
  return c == 0x143 ? 0xAD : -1;
}

// ---------------------------------------------------------------- patterns

// What Oniguruma reads in another way than PCRE2: [a[b]] and [a&&b] are sets there, and \h is a hexadecimal digit.
static const char *foreign_construct(const char *regex) {
  bool set = false;
  for (const char *at = regex; *at; at++) {
    if (at[0] == '\\' && at[1]) {
      if (at[1] == 'h' || at[1] == 'H') return "\\h";
      at++;
    } else if (!set) {
      set = at[0] == '[';
      if (set && at[1] == '^') at++;
      if (set && at[1] == ']') at++; // first in a set, it is a member
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

static deltaic_status regex_compile(struct pattern *pattern, const char *regex, const char *where,
                                    struct json_reader *r) {
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
  pcre2_jit_compile(pattern->regex, PCRE2_JIT_COMPLETE); // without a compiler, matching is interpreted
  return DELTAIC_OK;
}

static deltaic_status literal_copy(struct pattern *pattern, const char *literal) {
  pattern->length = strlen(literal);
  pattern->literal = strdup(literal);
  return pattern->literal ? DELTAIC_OK : fail_memory("a pattern", pattern->length + 1);
}

deltaic_status pattern_load(struct pattern *pattern, const json_t *value, const char *where, struct json_reader *r) {
  const char *literal = json_string_value(json_object_get(value, "String"));
  const char *regex = json_string_value(json_object_get(value, "Regex"));
  if (!literal == !regex)
    return fail(DELTAIC_BAD_FILE, "%s: the pattern of %s is neither a String nor a Regex", r->file, where);
  if (regex) return regex_compile(pattern, regex, where, r);
  if (!*literal) return fail(DELTAIC_UNSUPPORTED, "%s: an empty pattern in %s is not supported", r->file, where);
  return literal_copy(pattern, literal);
}

void pattern_free(struct pattern *pattern) {
  free(pattern->literal);
  pcre2_code_free(pattern->regex);
  *pattern = (struct pattern){0};
}

static bool spans_append(struct spans *spans, size_t begin, size_t end, bool match) {
  if (spans->count == spans->capacity) {
    size_t capacity = spans->capacity ? spans->capacity * 2 : 64;
    struct span *grown = capacity > SIZE_MAX / sizeof *grown ? NULL : realloc(spans->items, capacity * sizeof *grown);
    if (!grown) return false;
    spans->items = grown;
    spans->capacity = capacity;
  }
  spans->items[spans->count++] = (struct span){begin, end, match};
  return true;
}

void spans_free(struct spans *spans) {
  free(spans->items);
  *spans = (struct spans){0};
}

// A match and the gap before it.
static bool spans_match(struct spans *spans, size_t gap, size_t begin, size_t end) {
  return (gap == begin || spans_append(spans, gap, begin, false)) && spans_append(spans, begin, end, true);
}

static bool literal_spans(const struct pattern *pattern, const char *text, size_t length, struct spans *out,
                          size_t *last) {
  const char *end = text + length, *at = text;
  while ((size_t)(end - at) >= pattern->length) {
    at = memchr(at, pattern->literal[0], (size_t)(end - at) - pattern->length + 1);
    if (!at) break;
    if (memcmp(at, pattern->literal, pattern->length) != 0) {
      at++;
      continue;
    }
    size_t begin = (size_t)(at - text);
    if (!spans_match(out, *last, begin, begin + pattern->length)) return false;
    *last = begin + pattern->length;
    at += pattern->length;
  }
  return true;
}

static int regex_match(const struct pattern *pattern, const char *text, size_t length, size_t start,
                       pcre2_match_data *data, pcre2_match_context *context) {
  // The text was checked as a whole; to check it again for every word would take quadratic time.
  uint32_t options = PCRE2_NO_UTF_CHECK;
  int code = pcre2_match(pattern->regex, (PCRE2_SPTR)text, length, start, options, data, context);
  if (code == PCRE2_ERROR_JIT_STACKLIMIT) // the interpreter keeps its stack on the heap
    code = pcre2_match(pattern->regex, (PCRE2_SPTR)text, length, start, options | PCRE2_NO_JIT, data, context);
  return code;
}

// An empty match counts unless it touches the match before it (the rule of Rust's onig crate).
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
    if (found[0] < *last || found[1] < found[0]) break; // \K can move a match's start
    if (!spans_match(out, *last, found[0], found[1])) status = fail_memory("the words", out->capacity);
    any = true;
    start = *last = found[1];
  }
  pcre2_match_data_free(data);
  pcre2_match_context_free(context);
  return status;
}

deltaic_status pattern_spans(const struct pattern *pattern, const char *text, size_t length, struct spans *out) {
  size_t last = 0;
  deltaic_status status = DELTAIC_OK;
  out->count = 0;
  if (!pattern->literal)
    status = regex_spans(pattern, text, length, out, &last);
  else if (!literal_spans(pattern, text, length, out, &last))
    status = fail_memory("the words", out->capacity);
  if (!status && last < length && !spans_append(out, last, length, false))
    status = fail_memory("the words", out->capacity);
  return status;
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

// ---------------------------------------------------------------- loading

static struct step *steps_append(struct steps *steps, enum step_kind kind, struct json_reader *r) {
  if (steps->count == MAX_STEPS) {
    r->status = fail(DELTAIC_UNSUPPORTED, "%s: more than %d normalizers or pre-tokenizers are not supported", r->file,
                     MAX_STEPS);
    return NULL;
  }
  struct step *grown = realloc(steps->items, (steps->count + 1) * sizeof *grown);
  if (!grown) {
    r->status = fail_memory("a tokenizer's steps", (steps->count + 1) * sizeof *grown);
    return NULL;
  }
  steps->items = grown;
  steps->items[steps->count] = (struct step){.kind = kind};
  return &steps->items[steps->count++];
}

void steps_free(struct steps *steps) {
  for (size_t i = 0; i < steps->count; i++) {
    pattern_free(&steps->items[i].pattern);
    free(steps->items[i].content);
  }
  free(steps->items);
  *steps = (struct steps){0};
}

bool steps_have(const struct steps *steps, enum step_kind kind) {
  for (size_t i = 0; i < steps->count; i++)
    if (steps->items[i].kind == kind) return true;
  return false;
}

static deltaic_status load_content(struct step *step, const json_t *value, const char *key, const char *where,
                                   struct json_reader *r) {
  const char *content = json_text(r, value, key, NULL);
  if (r->status) return r->status;
  if (!content) return fail(DELTAIC_BAD_FILE, "%s: %s has no \"%s\"", r->file, where, key);
  step->content = strdup(content);
  return step->content ? DELTAIC_OK : fail_memory("a tokenizer's step", strlen(content) + 1);
}

static deltaic_status load_simple(struct steps *steps, enum step_kind kind, int form, struct json_reader *r) {
  struct step *step = steps_append(steps, kind, r);
  if (!step) return r->status;
  step->form = form;
  return DELTAIC_OK;
}

static deltaic_status load_strip(struct steps *steps, const json_t *value, struct json_reader *r) {
  struct step *step = steps_append(steps, STEP_STRIP, r);
  if (!step) return r->status;
  step->left = json_bool(r, value, "strip_left", true);
  step->right = json_bool(r, value, "strip_right", true);
  return r->status;
}

static deltaic_status load_replace(struct steps *steps, const json_t *value, struct json_reader *r) {
  struct step *step = steps_append(steps, STEP_REPLACE, r);
  if (!step) return r->status;
  deltaic_status status = load_content(step, value, "content", "normalizer Replace", r);
  return status ? status : pattern_load(&step->pattern, json_object_get(value, "pattern"), "normalizer Replace", r);
}

static deltaic_status load_prepend(struct steps *steps, const json_t *value, struct json_reader *r) {
  struct step *step = steps_append(steps, STEP_PREPEND, r);
  return step ? load_content(step, value, "prepend", "normalizer Prepend", r) : r->status;
}

typedef deltaic_status (*steps_loader)(struct steps *steps, const json_t *value, struct json_reader *r);

static deltaic_status load_sequence(struct steps *steps, const json_t *value, const char *key, steps_loader load,
                                    struct json_reader *r) {
  const json_t *parts = json_object_get(value, key);
  if (!json_is_array(parts)) return fail(DELTAIC_BAD_FILE, "%s: a Sequence has no \"%s\"", r->file, key);
  size_t index;
  json_t *part;
  deltaic_status status = DELTAIC_OK;
  json_array_foreach(parts, index, part) {
    if (!status) status = load(steps, part, r);
  }
  return status;
}

static const char *step_type(const json_t *value, const char *what, struct json_reader *r) {
  const char *type = json_string_value(json_object_get(value, "type"));
  if (!type) fail(DELTAIC_BAD_FILE, "%s: a %s has no \"type\"", r->file, what);
  return type;
}

deltaic_status normalizers_load(struct steps *steps, const json_t *value, struct json_reader *r) {
  static const struct {
    const char *name;
    int form;
  } forms[] = {{"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
               {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
               {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
               {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  if (!value || json_is_null(value)) return DELTAIC_OK;
  const char *type = step_type(value, "normalizer", r);
  if (!type) return DELTAIC_BAD_FILE;
  if (!strcmp(type, "Sequence")) return load_sequence(steps, value, "normalizers", normalizers_load, r);
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (!strcmp(type, forms[i].name)) return load_simple(steps, STEP_UNICODE, forms[i].form, r);
  if (!strcmp(type, "Prepend")) return load_prepend(steps, value, r);
  if (!strcmp(type, "Replace")) return load_replace(steps, value, r);
  if (!strcmp(type, "Strip")) return load_strip(steps, value, r);
  if (!strcmp(type, "Lowercase")) return load_simple(steps, STEP_LOWERCASE, 0, r);
  if (!strcmp(type, "StripAccents")) return load_simple(steps, STEP_STRIP_ACCENTS, 0, r);
  return fail(DELTAIC_UNSUPPORTED, "%s: normalizer \"%s\" is not supported", r->file, type);
}

// A Split by an expression of our own.
static deltaic_status load_words(struct steps *steps, const char *regex, enum behavior behavior, bool invert,
                                 struct json_reader *r) {
  struct step *step = steps_append(steps, STEP_SPLIT, r);
  if (!step) return r->status;
  step->behavior = behavior;
  step->invert = invert;
  return regex_compile(&step->pattern, regex, "pre_tokenizer", r);
}

static deltaic_status load_behavior(struct step *step, const json_t *value, const char *missing,
                                    struct json_reader *r) {
  static const char *names[] = {[REMOVED] = "Removed",
                                [ISOLATED] = "Isolated",
                                [MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                [MERGED_WITH_NEXT] = "MergedWithNext",
                                [CONTIGUOUS] = "Contiguous"};
  const char *name = json_text(r, value, "behavior", missing);
  if (r->status) return r->status;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) {
      step->behavior = (enum behavior)i;
      return DELTAIC_OK;
    }
  return fail(DELTAIC_UNSUPPORTED, "%s: split behavior \"%s\" is not supported", r->file, name);
}

static deltaic_status load_split(struct steps *steps, const json_t *value, struct json_reader *r) {
  struct step *step = steps_append(steps, STEP_SPLIT, r);
  if (!step) return r->status;
  step->invert = json_bool(r, value, "invert", false);
  deltaic_status status = load_behavior(step, value, "", r);
  return status ? status : pattern_load(&step->pattern, json_object_get(value, "pattern"), "pre_tokenizer Split", r);
}

static deltaic_status load_punctuation(struct steps *steps, const json_t *value, struct json_reader *r) {
  deltaic_status status = load_words(steps, "[!-\\/:-@\\[-`{-~\\p{P}]", ISOLATED, false, r);
  return status ? status : load_behavior(&steps->items[steps->count - 1], value, "Isolated", r);
}

static deltaic_status load_digits(struct steps *steps, const json_t *value, struct json_reader *r) {
  bool each = json_bool(r, value, "individual_digits", false);
  return r->status ? r->status : load_words(steps, "\\p{N}", each ? ISOLATED : CONTIGUOUS, false, r);
}

static deltaic_status load_byte_level(struct steps *steps, const json_t *value, struct json_reader *r) {
  bool prefix = json_bool(r, value, "add_prefix_space", true);
  bool words = json_bool(r, value, "use_regex", true);
  deltaic_status status = r->status;
  if (!status && prefix) status = load_simple(steps, STEP_PREFIX_SPACE, 0, r);
  if (!status && words) status = load_words(steps, gpt2_words, ISOLATED, false, r);
  return status ? status : load_simple(steps, STEP_BYTE_LEVEL, 0, r);
}

// add_prefix_space is the older spelling of prepend_scheme: true for "always", false for "never".
static deltaic_status load_scheme(enum prepend *prepend, const json_t *value, struct json_reader *r) {
  bool space = json_bool(r, value, "add_prefix_space", true);
  const char *scheme = json_text(r, value, "prepend_scheme", space ? "always" : "never");
  if (r->status) return r->status;
  if (!strcmp(scheme, "always"))
    *prepend = PREPEND_ALWAYS;
  else if (!strcmp(scheme, "first"))
    *prepend = PREPEND_FIRST;
  else if (!strcmp(scheme, "never"))
    *prepend = PREPEND_NEVER;
  else
    return fail(DELTAIC_UNSUPPORTED, "%s: Metaspace prepend_scheme \"%s\" is not supported", r->file, scheme);
  if (!space && *prepend != PREPEND_NEVER)
    return fail(DELTAIC_BAD_FILE, "%s: Metaspace add_prefix_space contradicts its prepend_scheme", r->file);
  return DELTAIC_OK;
}

deltaic_status metaspace_load(char **mark, enum prepend *prepend, const json_t *value, struct json_reader *r) {
  const char *text = json_text(r, value, "replacement", "");
  if (r->status) return r->status;
  if (!*text || text[utf8_length(*text)])
    return fail(DELTAIC_BAD_FILE, "%s: Metaspace replacement \"%s\" is not one character", r->file, text);
  *mark = strdup(text);
  return *mark ? load_scheme(prepend, value, r) : fail_memory("a tokenizer's step", strlen(text) + 1);
}

static deltaic_status load_metaspace(struct steps *steps, const json_t *value, struct json_reader *r) {
  struct step *step = steps_append(steps, STEP_METASPACE, r);
  if (!step) return r->status;
  deltaic_status status = metaspace_load(&step->content, &step->prepend, value, r);
  if (!status) status = literal_copy(&step->pattern, " ");
  bool split = json_bool(r, value, "split", true);
  if (status || r->status || !split) return status ? status : r->status;
  struct step *words = steps_append(steps, STEP_SPLIT, r);
  if (!words) return r->status;
  words->behavior = MERGED_WITH_NEXT;
  return literal_copy(&words->pattern, words[-1].content);
}

deltaic_status pretokenizers_load(struct steps *steps, const json_t *value, struct json_reader *r) {
  if (!value || json_is_null(value)) return DELTAIC_OK;
  const char *type = step_type(value, "pre_tokenizer", r);
  if (!type) return DELTAIC_BAD_FILE;
  if (!strcmp(type, "Sequence")) return load_sequence(steps, value, "pretokenizers", pretokenizers_load, r);
  if (!strcmp(type, "ByteLevel")) return load_byte_level(steps, value, r);
  if (!strcmp(type, "Split")) return load_split(steps, value, r);
  if (!strcmp(type, "Metaspace")) return load_metaspace(steps, value, r);
  if (!strcmp(type, "Digits")) return load_digits(steps, value, r);
  if (!strcmp(type, "Punctuation")) return load_punctuation(steps, value, r);
  if (!strcmp(type, "Whitespace")) return load_words(steps, "[" WORD "]+|[^" WORD SPACE "]+", REMOVED, true, r);
  if (!strcmp(type, "WhitespaceSplit")) return load_words(steps, "[" SPACE "]", REMOVED, false, r);
  return fail(DELTAIC_UNSUPPORTED, "%s: pre_tokenizer \"%s\" is not supported", r->file, type);
}

// ---------------------------------------------------------------- normalizing

static deltaic_status compose(const struct step *step, const char *text, size_t length, struct text *out) {
  utf8proc_uint8_t *mapped = NULL;
  utf8proc_ssize_t n =
      utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length, &mapped, (utf8proc_option_t)step->form);
  if (n < 0) return fail_memory("normalized text", length);
  text_append(out, (const char *)mapped, (size_t)n);
  free(mapped);
  return DELTAIC_OK;
}

static void append_character(struct text *out, uint32_t c) {
  char bytes[4];
  text_append(out, bytes, utf8_encode(c, bytes));
}

static void lowercase(const char *text, size_t length, struct text *out) {
  for (size_t at = 0; at < length; at += utf8_length(text[at])) {
    uint32_t c = utf8_decode(text + at);
    append_character(out, c == 0x130 ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
    if (c == 0x130) append_character(out, 0x307); // the one letter whose lower case is two
  }
}

static void strip_accents(const char *text, size_t length, bool *first, struct text *out) {
  for (size_t at = 0; at < length; at += utf8_length(text[at])) {
    if (!is_mark(utf8_decode(text + at)))
      text_append(out, text + at, utf8_length(text[at]));
    else if (at == 0)
      *first = false;
  }
}

static void strip(const struct step *step, const char *text, size_t length, bool *first, struct text *out) {
  size_t begin = 0, end = length;
  while (step->left && begin < end && is_space(utf8_decode(text + begin))) begin += utf8_length(text[begin]);
  while (step->right && end > begin) {
    size_t last = end - 1;
    while ((text[last] & 0xC0) == 0x80) last--;
    if (!is_space(utf8_decode(text + last))) break;
    end = last;
  }
  if (begin > 0) *first = false;
  text_append(out, text + begin, end - begin);
}

static deltaic_status step_normalize(const struct step *step, const char *text, size_t length, bool *first,
                                     struct text *out) {
  switch (step->kind) {
  case STEP_PREPEND:
    text_append(out, step->content, length ? strlen(step->content) : 0);
    text_append(out, text, length);
    return DELTAIC_OK;
  case STEP_REPLACE: return pattern_replace(&step->pattern, step->content, text, length, out);
  case STEP_UNICODE: return compose(step, text, length, out);
  case STEP_LOWERCASE: lowercase(text, length, out); return DELTAIC_OK;
  case STEP_STRIP: strip(step, text, length, first, out); return DELTAIC_OK;
  default: strip_accents(text, length, first, out); return DELTAIC_OK;
  }
}

deltaic_status normalize(const struct steps *steps, const char *text, size_t length, bool *first, struct text *out) {
  struct text from = {0}, to = {0};
  deltaic_status status = DELTAIC_OK;
  text_append(&from, text, length);
  for (size_t i = 0; i < steps->count && from.length > 0 && !status; i++) {
    to.length = 0;
    to.limit = MAX_GROWTH * (length + 1024);
    status = step_normalize(&steps->items[i], from.bytes, from.length, first, &to);
    struct text swap = from;
    from = to;
    to = swap;
  }
  text_append(out, from.bytes, from.length);
  if (!status && (from.failed || to.failed || out->failed)) status = fail_memory("normalized text", length);
  text_free(&from);
  text_free(&to);
  return status;
}

// ---------------------------------------------------------------- cutting into pieces

deltaic_status pieces_append(struct pieces *pieces, struct piece piece) {
  if (piece.id < 0 && piece.length == 0) return DELTAIC_OK;
  if (pieces->count == pieces->capacity) {
    size_t capacity = pieces->capacity ? pieces->capacity * 2 : 64;
    struct piece *grown = capacity > SIZE_MAX / sizeof *grown ? NULL : realloc(pieces->items, capacity * sizeof *grown);
    if (!grown) return fail_memory("the words", capacity * sizeof *grown);
    pieces->items = grown;
    pieces->capacity = capacity;
  }
  pieces->items[pieces->count++] = piece;
  return DELTAIC_OK;
}

void pieces_free(struct pieces *pieces) {
  text_free(&pieces->text);
  free(pieces->items);
  *pieces = (struct pieces){0};
}

// Joins matches (delimiters) with what they belong to, in place. The first span of two matches in a row is not joined
// with the second, whichever the direction (as in HuggingFace).
static void spans_join(struct spans *spans, enum behavior behavior) {
  size_t n = spans->count, kept = 0;
  struct span *s = spans->items;
  bool previous = false; // whether the span before, in reading direction, was a match
  if (behavior == MERGED_WITH_NEXT) {
    for (size_t i = n, to = n; i-- > 0; kept = n - to) {
      bool match = s[i].match;
      if (match && !previous && to < n)
        s[to].begin = s[i].begin;
      else
        s[--to] = s[i];
      previous = match;
    }
    memmove(s, s + (n - kept), kept * sizeof *s);
  } else {
    for (size_t i = 0; i < n; i++) {
      bool match = s[i].match, join = behavior == CONTIGUOUS ? match == previous : match && !previous;
      if (join && kept > 0)
        s[kept - 1].end = s[i].end;
      else
        s[kept++] = s[i];
      previous = match;
    }
  }
  spans->count = kept;
}

static deltaic_status split_piece(const struct step *step, const char *text, struct piece piece, struct spans *spans,
                                  struct pieces *out) {
  deltaic_status status = pattern_spans(&step->pattern, text + piece.begin, piece.length, spans);
  if (status) return status;
  for (size_t i = 0; i < spans->count; i++) spans->items[i].match ^= step->invert;
  if (step->behavior >= MERGED_WITH_PREVIOUS) spans_join(spans, step->behavior);
  for (size_t i = 0; i < spans->count && !status; i++) {
    struct span s = spans->items[i];
    if (step->behavior == REMOVED && s.match) continue;
    status =
        pieces_append(out, (struct piece){piece.begin + s.begin, s.end - s.begin, -1, piece.first && s.begin == 0});
  }
  return status;
}

// Cuts every word further. The text stays.
static deltaic_status step_split(const struct step *step, struct pieces *pieces) {
  struct pieces out = {0};
  struct spans spans = {0};
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < pieces->count && !status; i++) {
    struct piece piece = pieces->items[i];
    status = piece.id >= 0 ? pieces_append(&out, piece) : split_piece(step, pieces->text.bytes, piece, &spans, &out);
  }
  spans_free(&spans);
  out.text = pieces->text;
  free(pieces->items);
  *pieces = out;
  return status;
}

static void byte_level(const char *text, size_t length, struct text *out) {
  for (size_t i = 0; i < length; i++) append_character(out, byte_level_character((unsigned char)text[i]));
}

static deltaic_status metaspace(const struct step *step, const char *text, struct piece piece, struct text *out) {
  size_t mark = strlen(step->content);
  bool marked = *text == ' ' || (piece.length >= mark && memcmp(text, step->content, mark) == 0);
  bool prepend = step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && piece.first);
  if (prepend && !marked) text_append(out, step->content, mark);
  return pattern_replace(&step->pattern, step->content, text, piece.length, out);
}

// Rewrites every word. Their number stays.
static deltaic_status step_rewrite(const struct step *step, struct pieces *pieces) {
  struct text out = {0};
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < pieces->count && !status; i++) {
    struct piece *piece = &pieces->items[i];
    if (piece->id >= 0) continue;
    const char *text = pieces->text.bytes + piece->begin;
    size_t begin = out.length;
    if (step->kind == STEP_BYTE_LEVEL) byte_level(text, piece->length, &out);
    if (step->kind == STEP_METASPACE) status = metaspace(step, text, *piece, &out);
    if (step->kind == STEP_PREFIX_SPACE) {
      if (*text != ' ') text_append(&out, " ", 1);
      text_append(&out, text, piece->length);
    }
    piece->begin = begin;
    piece->length = out.length - begin;
  }
  if (out.failed) status = fail_memory("the words", out.length);
  text_free(&pieces->text);
  pieces->text = out;
  return status;
}

deltaic_status pretokenize(const struct steps *steps, struct pieces *pieces) {
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < steps->count && !status; i++) {
    const struct step *step = &steps->items[i];
    status = step->kind == STEP_SPLIT ? step_split(step, pieces) : step_rewrite(step, pieces);
  }
  return status;
}
