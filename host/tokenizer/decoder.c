// decoder: converts token texts to text, token by token. The decoders of a tokenizer.json form a chain. Each link
// passes output on as soon as it can no longer change, in whole characters only. Decoding a whole text runs the same
// chain to its end, so both ways give the same text.
//
// A link holds back output that may still change. ByteLevel holds an unfinished character. ByteFallback holds a run of
// byte tokens, because one bad byte turns the whole run into U+FFFD (as in HuggingFace). Replace holds a possible
// match. Strip holds the characters that it would remove if the text ended here.
#include "tokenizer.h"

// These limit the bytes that a token may become in the chain, because each Replace could double its length.
enum { MAX_WORK = 1 << 20, MAX_GROWTH = 256 };
static const char replacement[] = "\xEF\xBF\xBD"; // U+FFFD

// ---------------------------------------------------------------- chain

// The state that a link keeps between tokens.
struct link {
  struct text held;  // BYTE_LEVEL, BYTE_FALLBACK, REPLACE: text of the current token
  struct text bytes; // BYTE_LEVEL: an unfinished character; BYTE_FALLBACK: the run of byte tokens
  size_t tokens;     // JOIN, METASPACE: number of tokens before the current one
  size_t leading;    // STRIP: number of characters removed from the current token's start
  size_t trailing;   // STRIP: number of characters held at the current token's end
  bool inside;       // STRIP: true after the current token's start
};

struct deltaic_decoder {
  const deltaic_tokenizer *tokenizer;
  const struct steps *steps;
  struct link *links; // (steps->count)
  struct text out;
  bool skip_special;
  bool raw;              // bytes that are no character go into `out` as they are
  size_t work;           // bytes that links may still pass on in this call
  deltaic_status status; // the first failure
};

// Passes text of a token to link `at`. A separate call marks the end of the token.
static void put(struct deltaic_decoder *d, size_t at, const char *bytes, size_t n);
static void end(struct deltaic_decoder *d, size_t at);

static void put_invalid(struct deltaic_decoder *d, size_t at, const char *bytes, size_t n) {
  if (d->raw)
    text_append(&d->out, bytes, n);
  else
    put(d, at, replacement, 3);
}

// Passes on the whole characters and replaces invalid bytes by U+FFFD. final: no more bytes will come.
static void put_characters(struct deltaic_decoder *d, size_t at, struct text *bytes, bool final) {
  size_t done = 0;
  while (done < bytes->length) {
    int length = utf8_check(bytes->bytes + done, bytes->length - done);
    if (length == 0 && !final) break;
    size_t step = length > 0 ? (size_t)length : length < 0 ? (size_t)-length : bytes->length - done;
    if (length > 0)
      put(d, at, bytes->bytes + done, step);
    else
      put_invalid(d, at, bytes->bytes + done, step);
    done += step;
  }
  if (done > 0) memmove(bytes->bytes, bytes->bytes + done, bytes->length - done);
  bytes->length -= done;
}

// Converts a token to bytes. A token with a character outside the byte alphabet (an added token) keeps its own bytes.
static void byte_level_token(struct link *link) {
  const char *text = link->held.bytes;
  size_t length = link->held.length, start = link->bytes.length;
  for (size_t at = 0; at < length; at += utf8_length(text[at])) {
    int byte = byte_level_byte(utf8_decode(text + at));
    if (byte < 0) {
      link->bytes.length = start;
      text_append(&link->bytes, text, length);
      return;
    }
    text_append(&link->bytes, &(char){(char)byte}, 1);
  }
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Returns the byte of a token such as "<0xE2>", or -1 for any other token.
static int byte_token(const struct text *token) {
  const char *t = token->bytes;
  if (token->length != 6 || memcmp(t, "<0x", 3) != 0 || t[5] != '>') return -1;
  int high = hex_digit(t[3]), low = hex_digit(t[4]);
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static bool is_utf8(const struct text *bytes) {
  for (size_t at = 0; at < bytes->length;) {
    int length = utf8_check(bytes->bytes + at, bytes->length - at);
    if (length <= 0) return false;
    at += (size_t)length;
  }
  return true;
}

// Ends the run of byte tokens. It passes on one token of text, or one U+FFFD for each byte if the run is invalid.
static void flush_run(struct deltaic_decoder *d, size_t at) {
  struct text *run = &d->links[at].bytes;
  if (run->length > 0 && is_utf8(run)) {
    put(d, at + 1, run->bytes, run->length);
    end(d, at + 1);
  } else {
    for (size_t i = 0; i < run->length; i++) {
      put_invalid(d, at + 1, run->bytes + i, 1);
      end(d, at + 1);
    }
  }
  run->length = 0;
}

static void byte_fallback_token(struct deltaic_decoder *d, size_t at) {
  struct link *link = &d->links[at];
  int byte = byte_token(&link->held);
  if (byte >= 0) {
    text_append(&link->bytes, &(char){(char)byte}, 1);
    return;
  }
  flush_run(d, at);
  put(d, at + 1, link->held.bytes, link->held.length);
  end(d, at + 1);
}

// Returns how many bytes at the end of the text may be the beginning of the literal.
static size_t partial_match(const struct pattern *pattern, const char *text, size_t length) {
  size_t n = length < pattern->length ? length : pattern->length - 1;
  while (n > 0 && memcmp(text + length - n, pattern->literal, n) != 0) n--;
  return n;
}

// Passes on the text that can no longer change. final: the token ends here. A regex runs only on a complete token.
static void replace(struct deltaic_decoder *d, size_t at, bool final) {
  const struct step *step = &d->steps->items[at];
  struct text *held = &d->links[at].held;
  if (held->length == 0 || (!step->pattern.literal && !final)) return;
  struct spans spans = {0};
  deltaic_status status = pattern_spans(&step->pattern, held->bytes, held->length, &spans);
  size_t done = 0;
  for (size_t i = 0; !status && i < spans.count; i++) {
    struct span s = spans.items[i];
    size_t rest = 0;
    if (!final && !s.match && i + 1 == spans.count)
      rest = partial_match(&step->pattern, held->bytes + s.begin, s.end - s.begin);
    if (s.match)
      put(d, at + 1, step->content, strlen(step->content));
    else
      put(d, at + 1, held->bytes + s.begin, s.end - s.begin - rest);
    done = s.end - rest;
  }
  spans_free(&spans);
  if (status) d->status = status;
  memmove(held->bytes, held->bytes + done, held->length - done);
  held->length -= done;
}

static bool same_character(const char *bytes, const char *character) {
  return strncmp(bytes, character, utf8_length(*bytes)) == 0;
}

static void strip(struct deltaic_decoder *d, size_t at, const char *bytes, size_t n) {
  const struct step *step = &d->steps->items[at];
  struct link *link = &d->links[at];
  size_t width = strlen(step->content);
  for (size_t i = 0; i < n && !d->status; i += utf8_length(bytes[i])) {
    bool same = same_character(bytes + i, step->content);
    if (same && !link->inside && link->leading < step->start) {
      link->leading++;
    } else if (same && link->trailing < step->stop) {
      link->inside = true;
      link->trailing++;
    } else {
      link->inside = true;
      for (; !same && link->trailing > 0; link->trailing--) put(d, at + 1, step->content, width);
      put(d, at + 1, bytes + i, utf8_length(bytes[i]));
    }
  }
}

// The marks of the first token are the space that encoding put before the text.
static void metaspace(struct deltaic_decoder *d, size_t at, const char *bytes, size_t n) {
  const struct step *step = &d->steps->items[at];
  bool drop = d->links[at].tokens == 0 && step->prepend != PREPEND_NEVER;
  for (size_t i = 0; i < n; i += utf8_length(bytes[i])) {
    bool mark = same_character(bytes + i, step->content);
    if (!mark)
      put(d, at + 1, bytes + i, utf8_length(bytes[i]));
    else if (!drop)
      put(d, at + 1, " ", 1);
  }
}

static void put(struct deltaic_decoder *d, size_t at, const char *bytes, size_t n) {
  if (!d->status && n > d->work)
    d->status = fail(DELTAIC_UNSUPPORTED, "the tokenizer's decoders make a token more than %d bytes long", MAX_WORK);
  if (d->status) return;
  d->work -= n;
  if (at == d->steps->count) {
    text_append(&d->out, bytes, n);
    return;
  }
  switch (d->steps->items[at].kind) {
  case DECODE_JOIN:
    if (d->links[at].tokens > 0) put(d, at + 1, " ", 1);
    put(d, at + 1, bytes, n);
    break;
  case DECODE_BYTE_LEVEL:
  case DECODE_BYTE_FALLBACK: text_append(&d->links[at].held, bytes, n); break;
  case DECODE_FUSE: put(d, at + 1, bytes, n); break;
  case DECODE_REPLACE:
    text_append(&d->links[at].held, bytes, n);
    replace(d, at, false);
    break;
  case DECODE_STRIP: strip(d, at, bytes, n); break;
  case DECODE_METASPACE: metaspace(d, at, bytes, n); break;
  default: break;
  }
}

static void end(struct deltaic_decoder *d, size_t at) {
  if (d->status || at == d->steps->count) return;
  struct link *link = &d->links[at];
  enum step_kind kind = d->steps->items[at].kind;
  if (kind == DECODE_BYTE_LEVEL) {
    byte_level_token(link);
    put_characters(d, at + 1, &link->bytes, false);
  }
  if (kind == DECODE_BYTE_FALLBACK) byte_fallback_token(d, at);
  if (kind == DECODE_REPLACE) replace(d, at, true);
  if (kind == DECODE_REPLACE || kind == DECODE_STRIP || kind == DECODE_METASPACE) end(d, at + 1);
  link->held.length = 0;
  link->leading = link->trailing = 0;
  link->inside = false;
  link->tokens++;
}

// Ends the stream of tokens. Decoders that join all tokens into one end that token here.
static void finish(struct deltaic_decoder *d, size_t at) {
  enum step_kind kind = d->steps->items[at].kind;
  if (kind == DECODE_BYTE_FALLBACK) flush_run(d, at);
  if (kind == DECODE_BYTE_LEVEL) put_characters(d, at + 1, &d->links[at].bytes, true);
  if (kind == DECODE_BYTE_LEVEL || kind == DECODE_FUSE) end(d, at + 1);
}

// ---------------------------------------------------------------- public functions

static deltaic_status decoder_begin(struct deltaic_decoder *d, const deltaic_tokenizer *tokenizer, bool skip_special) {
  *d = (struct deltaic_decoder){
      .tokenizer = tokenizer, .steps = tokenizer_decoders(tokenizer), .skip_special = skip_special};
  d->links = calloc(d->steps->count + 1, sizeof *d->links);
  return d->links ? DELTAIC_OK : fail_memory("a decoder", (d->steps->count + 1) * sizeof *d->links);
}

static void decoder_end(struct deltaic_decoder *d) {
  for (size_t i = 0; d->links && i < d->steps->count; i++) {
    text_free(&d->links[i].held);
    text_free(&d->links[i].bytes);
  }
  free(d->links);
  text_free(&d->out);
}

static void allow_work(struct deltaic_decoder *d, size_t bytes) {
  for (size_t i = 0; i < d->steps->count; i++) bytes += d->links[i].held.length + 3 * d->links[i].bytes.length;
  d->work = MAX_WORK + MAX_GROWTH * bytes;
}

static deltaic_status decoder_status(struct deltaic_decoder *d) {
  bool failed = d->out.failed;
  for (size_t i = 0; i < d->steps->count; i++) failed |= d->links[i].held.failed || d->links[i].bytes.failed;
  if (failed && !d->status) d->status = fail_memory("decoded text", d->out.length);
  return d->status;
}

// An id without a token gives no text (as in HuggingFace), because a model may have more ids than its tokenizer.
static deltaic_status decoder_feed(struct deltaic_decoder *d, int32_t id) {
  if (id < 0) return fail(DELTAIC_INVALID_ARGUMENT, "token id %d is negative", (int)id);
  const struct token *token = tokenizer_token(d->tokenizer, id);
  if (!token || (d->skip_special && token->special)) return d->status;
  allow_work(d, token->length);
  put(d, 0, token->text, token->length);
  end(d, 0);
  return decoder_status(d);
}

static deltaic_status decoder_flush(struct deltaic_decoder *d) {
  allow_work(d, 0);
  for (size_t i = 0; i < d->steps->count; i++) finish(d, i);
  return decoder_status(d);
}

static deltaic_status decode_whole(struct deltaic_decoder *d, const int32_t *ids, size_t n, char *text, size_t capacity,
                                   size_t *bytes) {
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < n && !status; i++) status = decoder_feed(d, ids[i]);
  if (!status) status = decoder_flush(d);
  if (!status && bytes) *bytes = d->out.length;
  if (!status && text && d->out.length > capacity)
    status = fail(DELTAIC_BUFFER_TOO_SMALL, "the text has %zu bytes, the buffer room for %zu", d->out.length, capacity);
  if (!status && text && d->out.length) memcpy(text, d->out.bytes, d->out.length);
  return status;
}

deltaic_status deltaic_tokenizer_decode(const deltaic_tokenizer *tokenizer, const int32_t *ids, size_t n,
                                        bool skip_special, char *text, size_t capacity, size_t *bytes) {
  if (refuse_null("deltaic_tokenizer_decode", "tokenizer,ids,text", tokenizer, FILLED(ids, n), FILLED(text, capacity)))
    return DELTAIC_INVALID_ARGUMENT;
  struct deltaic_decoder d;
  deltaic_status status = decoder_begin(&d, tokenizer, skip_special);
  if (!status) status = decode_whole(&d, ids, n, text, capacity, bytes);
  decoder_end(&d);
  return status;
}

deltaic_status deltaic_tokenizer_token_bytes(const deltaic_tokenizer *tokenizer, int32_t id, char *bytes,
                                             size_t capacity, size_t *count) {
  if (refuse_null("deltaic_tokenizer_token_bytes", "tokenizer,bytes", tokenizer, FILLED(bytes, capacity)))
    return DELTAIC_INVALID_ARGUMENT;
  struct deltaic_decoder d;
  deltaic_status status = decoder_begin(&d, tokenizer, false);
  d.raw = true;
  if (!status) status = decode_whole(&d, &id, 1, bytes, capacity, count);
  decoder_end(&d);
  return status;
}

deltaic_status deltaic_decoder_create(const deltaic_tokenizer *tokenizer, bool skip_special, deltaic_decoder **out) {
  if (refuse_null("deltaic_decoder_create", "tokenizer,out", tokenizer, out)) return DELTAIC_INVALID_ARGUMENT;
  struct deltaic_decoder *d = malloc(sizeof *d);
  if (!d) return fail_memory("a decoder", sizeof *d);
  deltaic_status status = decoder_begin(d, tokenizer, skip_special);
  if (status)
    deltaic_decoder_free(d);
  else
    *out = d;
  return status;
}

void deltaic_decoder_free(deltaic_decoder *d) {
  if (!d) return;
  decoder_end(d);
  free(d);
}

static deltaic_status decoder_result(struct deltaic_decoder *d, deltaic_status status, const char **text,
                                     size_t *bytes) {
  if (status) return status;
  *text = d->out.length ? d->out.bytes : "";
  *bytes = d->out.length;
  return DELTAIC_OK;
}

deltaic_status deltaic_decoder_push(deltaic_decoder *d, int32_t id, const char **text, size_t *bytes) {
  if (refuse_null("deltaic_decoder_push", "decoder,text,bytes", d, text, bytes)) return DELTAIC_INVALID_ARGUMENT;
  d->out.length = 0;
  return decoder_result(d, decoder_feed(d, id), text, bytes);
}

// Leaves the decoder ready for another text.
deltaic_status deltaic_decoder_finish(deltaic_decoder *d, const char **text, size_t *bytes) {
  if (refuse_null("deltaic_decoder_finish", "decoder,text,bytes", d, text, bytes)) return DELTAIC_INVALID_ARGUMENT;
  d->out.length = 0;
  deltaic_status status = decoder_flush(d);
  for (size_t i = 0; i < d->steps->count; i++) {
    d->links[i].held.length = d->links[i].bytes.length = 0;
    d->links[i].tokens = d->links[i].leading = d->links[i].trailing = 0;
    d->links[i].inside = false;
  }
  return decoder_result(d, status, text, bytes);
}
