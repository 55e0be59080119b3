// eval_text: handles white space and capitals, and cleans up WikiText and HellaSwag like the harness.
#include "eval_text.h"
#include "common.h" // must_resize

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

// ---------------------------------------------------------------- UTF-8

// Returns the character at text and sets *n to its size in bytes; returns -1 with *n = 1 if it is not UTF-8.
static int32_t character(const char *text, size_t bytes, size_t *n) {
  utf8proc_int32_t c;
  utf8proc_ssize_t got = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &c);
  *n = got > 0 ? (size_t)got : 1;
  return got > 0 ? c : -1;
}

size_t utf8_error(const char *text, size_t bytes) {
  size_t n;
  for (size_t at = 0; at < bytes; at += n)
    if (character(text + at, bytes - at, &n) < 0) return at;
  return bytes;
}

size_t utf8_characters(const char *text, size_t bytes) {
  size_t count = 0;
  for (size_t i = 0; i < bytes; ++i) count += ((unsigned char)text[i] & 0xc0) != 0x80;
  return count;
}

static bool is_space(int32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t space_at_begin(const char *text, size_t bytes) {
  size_t at = 0, n;
  while (at < bytes && is_space(character(text + at, bytes - at, &n))) at += n;
  return at;
}

size_t space_at_end(const char *text, size_t bytes) {
  size_t end = 0, n;
  for (size_t at = 0; at < bytes; at += n)
    if (!is_space(character(text + at, bytes - at, &n))) end = at + n;
  return end;
}

size_t split_words(const char *text, size_t bytes) {
  size_t words = 1, n;
  bool before = false;
  for (size_t at = 0; at < bytes; at += n) {
    bool space = is_space(character(text + at, bytes - at, &n));
    words += space && !before;
    before = space;
  }
  return words;
}

// ---------------------------------------------------------------- new texts

char *text_copy(const char *text, size_t bytes) {
  char *out = must_resize(NULL, bytes + 1);
  memcpy(out, text, bytes);
  out[bytes] = 0;
  return out;
}

char *text_strip(const char *text) {
  size_t end = space_at_end(text, strlen(text)), begin = space_at_begin(text, end);
  return text_copy(text + begin, end - begin);
}

char *text_capitalize(const char *text) {
  size_t bytes = strlen(text), used = 0, n;
  char *out = must_resize(NULL, 4 * bytes + 1);
  for (size_t at = 0; at < bytes; at += n) {
    int32_t c = character(text + at, bytes - at, &n);
    c = at ? utf8proc_tolower(c) : utf8proc_totitle(c);
    used += (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)out + used);
  }
  out[used] = 0;
  return out;
}

char *text_replace(const char *text, const char *from, const char *to) {
  size_t count = 0, length = strlen(from), put = strlen(to);
  const char *found;
  for (const char *p = text; (found = strstr(p, from)); p = found + length) ++count;
  char *out = must_resize(NULL, strlen(text) + count * put + 1), *q = out;
  for (; (found = strstr(text, from)); text = found + length) {
    memcpy(q, text, (size_t)(found - text));
    q += found - text;
    memcpy(q, to, put);
    q += put;
  }
  strcpy(q, text);
  return out;
}

// ---------------------------------------------------------------- WikiText

static void replace(char **text, const char *from, const char *to) {
  char *out = text_replace(*text, from, to);
  free(*text);
  *text = out;
}

// re.sub(open \s* ([^close]*?) \s* close): removes white space just inside a pair. The text never grows.
static void trim_inside(char *text, char open, char close) {
  char *out = text;
  bool more = true; // whether closing characters follow
  while (*text) {
    char *end = *text == open && more ? strchr(text + 1, close) : NULL;
    if (!end) {
      more &= *text != open;
      *out++ = *text++;
      continue;
    }
    size_t n = space_at_end(text + 1, (size_t)(end - text - 1)), begin = space_at_begin(text + 1, n);
    *out++ = open;
    memmove(out, text + 1 + begin, n - begin);
    out += n - begin;
    *out++ = close;
    text = end + 1;
  }
  *out = 0;
}

// re.sub(r"/' [0-9]/", r"/'[0-9]/"): by mistake the harness's pattern has slashes and its replacement is literal. This
// code does the same.
static void replace_digits(char **text) {
  char from[] = "/' 0/";
  for (; from[3] <= '9'; ++from[3]) replace(text, from, "/'[0-9]/");
}

char *text_detokenize(const char *text) {
  static const char *const spaces[][2] = {{" @-@ ", "-"}, {" @,@ ", ","}, {" @.@ ", "."}, {" : ", ": "}, {" ; ", "; "},
                                          {" . ", ". "},  {" ! ", "! "},  {" ? ", "? "},  {" , ", ", "}};
  static const char *const rest[][2] = {
      {"= = = =", "===="}, {"= = =", "==="}, {"= =", "=="},  {" \xc2\xb0 ", "\xc2\xb0"},
      {" \n", "\n"},       {"\n ", "\n"},    {" N ", " 1 "}, {" 's", "'s"}};
  char *out = text_replace(text, "s '", "s'");
  replace_digits(&out);
  for (size_t i = 0; i < sizeof spaces / sizeof *spaces; ++i) replace(&out, spaces[i][0], spaces[i][1]);
  trim_inside(out, '(', ')');
  trim_inside(out, '[', ']');
  trim_inside(out, '{', '}');
  trim_inside(out, '"', '"');
  trim_inside(out, '\'', '\'');
  for (size_t i = 0; i < sizeof rest / sizeof *rest; ++i) replace(&out, rest[i][0], rest[i][1]);
  return out;
}

// ---------------------------------------------------------------- HellaSwag

// re.sub(r"\[.*?\]", ""): `.` does not match a newline.
static void drop_brackets(char *text) {
  char *out = text;
  while (*text) {
    size_t n = *text == '[' ? strcspn(text, "]\n") : 0;
    if (n && text[n] == ']')
      text += n + 1;
    else
      *out++ = *text++;
  }
  *out = 0;
}

char *text_wikihow(const char *text) {
  char *out = text_strip(text);
  replace(&out, " [title]", ". ");
  drop_brackets(out);
  replace(&out, "  ", " ");
  return out;
}
