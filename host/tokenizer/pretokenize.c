// pretokenize: runs the normalizers and pre-tokenizers of steps.c with the results of HuggingFace tokenizers.
#include "pretokenize.h"

#include "list.h"

#include <utf8proc.h>

// The limit on how much normalizers may lengthen a text, because every step of a file could double it.
enum { MAX_GROWTH = 64 };

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

// The visible characters of Latin-1 represent their own bytes. The other bytes, in order, are represented by the
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

// ---------------------------------------------------------------- normalization

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
    if (c == 0x130) append_character(out, 0x307); // U+0130 is the only letter whose lower case has two characters
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

// ---------------------------------------------------------------- pre-tokenization

deltaic_status pieces_append(struct pieces *pieces, struct piece piece) {
  if (piece.id < 0 && piece.length == 0) return DELTAIC_OK;
  deltaic_status status =
      list_room(&pieces->items, pieces->count, &pieces->capacity, sizeof *pieces->items, "the words");
  if (!status) pieces->items[pieces->count++] = piece;
  return status;
}

void pieces_free(struct pieces *pieces) {
  text_free(&pieces->text);
  free(pieces->items);
  *pieces = (struct pieces){0};
}

// Joins each match (delimiter) with its neighbour, in place. The first of two adjacent matches is not joined with the
// second in either direction (as in HuggingFace).
static void spans_join(struct spans *spans, enum behavior behavior) {
  size_t n = spans->count, kept = 0;
  struct span *s = spans->items;
  bool previous = false; // whether the preceding span, in reading direction, was a match
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

// Splits every word into smaller words. The text does not change.
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

// Rewrites every word. The number of words does not change.
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
