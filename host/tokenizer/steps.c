// steps: reads the normalizers, pre-tokenizers and decoders of a tokenizer.json as lists of steps. pretokenize.c and
// decoder.c run these steps.
#include "steps.h"

#include <utf8proc.h>

// The word pattern of GPT-2, which the ByteLevel pre-tokenizer uses implicitly.
static const char gpt2_words[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
// \w of Rust's regex crate. PCRE2's \w matches fewer characters.
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200C}\\x{200D}\\x{24B6}-\\x{24E9}"
// White_Space. PCRE2's \s also matches U+180E.
#define SPACE                                                                                                          \
  "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

// The limit on the length of a list. Decoders recurse once per step.
enum { MAX_STEPS = 64 };

// ---------------------------------------------------------------- list of steps

static struct step *steps_append(struct steps *steps, enum step_kind kind, struct json_reader *r) {
  if (steps->count == MAX_STEPS) {
    r->status = fail(DELTAIC_UNSUPPORTED, "%s: more than %d %s are not supported", r->file, MAX_STEPS,
                     kind < DECODE_JOIN ? "normalizers or pre-tokenizers" : "decoders");
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

// ---------------------------------------------------------------- fields that several steps share

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

static deltaic_status load_replace(struct steps *steps, enum step_kind kind, const json_t *value, const char *where,
                                   struct json_reader *r) {
  struct step *step = steps_append(steps, kind, r);
  if (!step) return r->status;
  deltaic_status status = load_content(step, value, "content", where, r);
  return status ? status : pattern_load(&step->pattern, json_object_get(value, "pattern"), where, r);
}

// Reads prepend_scheme. add_prefix_space is the older spelling: true means "always", and false means "never".
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

// Reads the fields that a Metaspace pre-tokenizer and decoder share.
static deltaic_status load_mark(struct step *step, const json_t *value, struct json_reader *r) {
  const char *text = json_text(r, value, "replacement", "");
  if (r->status) return r->status;
  if (!*text || text[utf8_length(*text)])
    return fail(DELTAIC_BAD_FILE, "%s: Metaspace replacement \"%s\" is not one character", r->file, text);
  step->content = strdup(text);
  return step->content ? load_scheme(&step->prepend, value, r) : fail_memory("a tokenizer's step", strlen(text) + 1);
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

// ---------------------------------------------------------------- normalizers

static deltaic_status load_strip(struct steps *steps, const json_t *value, struct json_reader *r) {
  struct step *step = steps_append(steps, STEP_STRIP, r);
  if (!step) return r->status;
  step->left = json_bool(r, value, "strip_left", true);
  step->right = json_bool(r, value, "strip_right", true);
  return r->status;
}

static deltaic_status load_prepend(struct steps *steps, const json_t *value, struct json_reader *r) {
  struct step *step = steps_append(steps, STEP_PREPEND, r);
  return step ? load_content(step, value, "prepend", "normalizer Prepend", r) : r->status;
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
  if (!strcmp(type, "Replace")) return load_replace(steps, STEP_REPLACE, value, "normalizer Replace", r);
  if (!strcmp(type, "Strip")) return load_strip(steps, value, r);
  if (!strcmp(type, "Lowercase")) return load_simple(steps, STEP_LOWERCASE, 0, r);
  if (!strcmp(type, "StripAccents")) return load_simple(steps, STEP_STRIP_ACCENTS, 0, r);
  return fail(DELTAIC_UNSUPPORTED, "%s: normalizer \"%s\" is not supported", r->file, type);
}

// ---------------------------------------------------------------- pre-tokenizers

// Adds a Split step with a built-in regular expression.
static deltaic_status load_words(struct steps *steps, const char *regex, enum behavior behavior, bool invert,
                                 struct json_reader *r) {
  struct step *step = steps_append(steps, STEP_SPLIT, r);
  if (!step) return r->status;
  step->behavior = behavior;
  step->invert = invert;
  return pattern_regex(&step->pattern, regex, "pre_tokenizer", r);
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

static deltaic_status load_metaspace(struct steps *steps, const json_t *value, struct json_reader *r) {
  struct step *step = steps_append(steps, STEP_METASPACE, r);
  if (!step) return r->status;
  deltaic_status status = load_mark(step, value, r);
  if (!status) status = pattern_literal(&step->pattern, " ");
  bool split = json_bool(r, value, "split", true);
  if (status || r->status || !split) return status ? status : r->status;
  struct step *words = steps_append(steps, STEP_SPLIT, r);
  if (!words) return r->status;
  words->behavior = MERGED_WITH_NEXT;
  return pattern_literal(&words->pattern, words[-1].content);
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

// ---------------------------------------------------------------- decoders

static deltaic_status load_ends(struct steps *steps, const json_t *value, struct json_reader *r) {
  struct step *step = steps_append(steps, DECODE_STRIP, r);
  if (!step) return r->status;
  step->start = (size_t)json_int(r, value, "start", 0, 0, INT32_MAX);
  step->stop = (size_t)json_int(r, value, "stop", 0, 0, INT32_MAX);
  deltaic_status status = load_content(step, value, "content", "decoder Strip", r);
  if (status || (*step->content && !step->content[utf8_length(*step->content)])) return status;
  return fail(DELTAIC_BAD_FILE, "%s: decoder Strip's content \"%s\" is not one character", r->file, step->content);
}

static deltaic_status load_decoder(struct steps *steps, const json_t *value, struct json_reader *r) {
  const char *type = step_type(value, "decoder", r);
  if (!type) return DELTAIC_BAD_FILE;
  if (!strcmp(type, "Sequence")) return load_sequence(steps, value, "decoders", load_decoder, r);
  if (!strcmp(type, "ByteLevel")) return load_simple(steps, DECODE_BYTE_LEVEL, 0, r);
  if (!strcmp(type, "ByteFallback")) return load_simple(steps, DECODE_BYTE_FALLBACK, 0, r);
  if (!strcmp(type, "Fuse")) return load_simple(steps, DECODE_FUSE, 0, r);
  if (!strcmp(type, "Replace")) return load_replace(steps, DECODE_REPLACE, value, "decoder Replace", r);
  if (!strcmp(type, "Strip")) return load_ends(steps, value, r);
  if (strcmp(type, "Metaspace") != 0)
    return fail(DELTAIC_UNSUPPORTED, "%s: decoder \"%s\" is not supported", r->file, type);
  struct step *step = steps_append(steps, DECODE_METASPACE, r);
  return step ? load_mark(step, value, r) : r->status;
}

deltaic_status decoders_load(struct steps *steps, const json_t *value, struct json_reader *r) {
  if (value && !json_is_null(value)) return load_decoder(steps, value, r);
  return load_simple(steps, DECODE_JOIN, 0, r);
}
