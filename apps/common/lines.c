// lines: reads lines of any length into a bounded buffer; the rest of a line that is too long is skipped.
#include "lines.h"
#include "common.h"
#include "eval_text.h"
#include "platform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int lines_open(struct lines *l, const char *path) {
  bool standard = !strcmp(path, "-");
  memset(l, 0, sizeof *l);
  l->path = input_name(path);
  sha256_begin(&l->hash);
  errno = 0;
  l->stream = standard ? stdin : platform_open(path, "rb");
  return l->stream ? EXIT_OK : complain(EXIT_FAILED, "%s: %s", path, errno_text(errno));
}

static bool fill(struct lines *l) {
  l->at = 0;
  l->filled = fread(l->buffer, 1, sizeof l->buffer, l->stream);
  sha256_add(&l->hash, l->buffer, l->filled);
  return l->filled > 0;
}

static void append(struct lines *l, const char *bytes, size_t n) {
  if (l->length + n > LINE_MOST) {
    snprintf(l->problem, sizeof l->problem, "the line is longer than %d MiB", LINE_MOST >> 20);
    return;
  }
  if (l->length + n + 1 > l->capacity) {
    l->capacity = 2 * (l->length + n) + 1;
    l->text = must_resize(l->text, l->capacity);
  }
  memcpy(l->text + l->length, bytes, n);
  l->length += n;
}

// Skips a byte order mark.
static void drop_mark(struct lines *l) {
  if (l->number != 1 || l->length < 3 || memcmp(l->text, "\xef\xbb\xbf", 3)) return;
  l->length -= 3;
  memmove(l->text, l->text + 3, l->length);
}

static void check(struct lines *l) {
  if (!l->problem[0] && l->length && l->text[l->length - 1] == '\r') --l->length;
  size_t wrong = l->problem[0] ? 0 : utf8_error(l->text, l->length);
  if (!l->problem[0] && wrong < l->length)
    snprintf(l->problem, sizeof l->problem, "byte %zu of the line, 0x%02x, is not UTF-8", wrong + 1,
             (unsigned char)l->text[wrong]);
  if (l->problem[0]) l->length = 0;
  l->text[l->length] = 0;
}

// Reads up to the end of the line; returns false at the end of the file.
static bool skip_rest(struct lines *l) {
  enum { SKIP_MOST = 1 << 30 };
  for (size_t skipped = 0; l->inside;) {
    if (l->at == l->filled && !fill(l)) return false;
    const char *begin = l->buffer + l->at, *end = memchr(begin, '\n', l->filled - l->at);
    const size_t n = end ? (size_t)(end - begin) + 1 : l->filled - l->at;
    l->inside = !end;
    l->at += n;
    l->endless = l->inside && (skipped += n) >= SKIP_MOST;
    if (l->endless) return false;
  }
  return true;
}

bool lines_next(struct lines *l) {
  bool any = false;
  if (!skip_rest(l)) return false;
  l->length = 0;
  l->problem[0] = 0;
  append(l, "", 0); // makes the text non-NULL
  for (;;) {
    if (l->at == l->filled && !fill(l)) break;
    any = true;
    const char *begin = l->buffer + l->at, *end = memchr(begin, '\n', l->filled - l->at);
    size_t n = end ? (size_t)(end - begin) : l->filled - l->at;
    append(l, begin, n);
    l->at += n + (end != NULL);
    l->inside = l->problem[0] && !end;
    if (end || l->inside) break;
  }
  if (!any) return false;
  ++l->number;
  drop_mark(l);
  check(l);
  return true;
}

int lines_close(struct lines *l) {
  bool failed = l->stream && ferror(l->stream);
  if (l->stream) fclose(l->stream);
  free(l->text);
  l->text = NULL;
  l->stream = NULL;
  if (l->endless) return complain(EXIT_FAILED, "%s:%zu: the line does not end within 1 GiB", l->path, l->number);
  return failed ? complain(EXIT_FAILED, "%s: cannot be read", l->path) : EXIT_OK;
}
