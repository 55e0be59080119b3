// stops: finds stop strings in a text that arrives in parts. Text that may be the beginning of a stop string is held
// back. The text stops as soon as one of them is complete, wherever the parts end.
#include "deltaic.h"
#include "status.h"
#include "text.h"

enum { MOST_STOPS = 256, MOST_BYTES = 4096 };

struct stop {
  char *bytes;
  size_t length;
};

struct deltaic_stops {
  struct stop *items;
  size_t count;
  struct text out;  // what the last call returned, followed by what is held back
  size_t returned;  // bytes of `out` that have been returned
  struct text rest; // pushed after the stop string
  int32_t found;    // index of the stop string; -1: none yet
};

// ---------------------------------------------------------------- creation

static deltaic_status check_stop(const char *stop, size_t index) {
  if (!stop) return fail(DELTAIC_INVALID_ARGUMENT, "stop string %zu is NULL", index + 1);
  const size_t length = strlen(stop);
  if (!length) return fail(DELTAIC_INVALID_ARGUMENT, "stop string %zu is empty", index + 1);
  if (length > MOST_BYTES)
    return fail(DELTAIC_INVALID_ARGUMENT, "stop string %zu has %zu bytes; the most is %d", index + 1, length,
                MOST_BYTES);
  for (size_t at = 0; at < length;) {
    int step = utf8_check(stop + at, length - at);
    if (step <= 0) return fail(DELTAIC_INVALID_ARGUMENT, "stop string %zu is not UTF-8", index + 1);
    at += (size_t)step;
  }
  return DELTAIC_OK;
}

deltaic_status deltaic_stops_create(const char *const *stops, size_t n, deltaic_stops **out) {
  if (refuse_null("deltaic_stops_create", "stops,out", FILLED(stops, n), out)) return DELTAIC_INVALID_ARGUMENT;
  if (n > MOST_STOPS) return fail(DELTAIC_INVALID_ARGUMENT, "%zu stop strings; the most is %d", n, MOST_STOPS);
  struct deltaic_stops *s = calloc(1, sizeof *s);
  deltaic_status status = s ? DELTAIC_OK : fail_memory("stop strings", sizeof *s);
  if (s) {
    s->found = -1;
    s->items = calloc(n + 1, sizeof *s->items);
    if (!s->items) status = fail_memory("stop strings", n * sizeof *s->items);
  }
  for (size_t i = 0; i < n && !status; i++) {
    status = check_stop(stops[i], i);
    if (status) break;
    s->items[i] = (struct stop){strdup(stops[i]), strlen(stops[i])};
    s->count++;
    if (!s->items[i].bytes) status = fail_memory("stop strings", s->items[i].length);
  }
  if (status)
    deltaic_stops_free(s);
  else
    *out = s;
  return status;
}

void deltaic_stops_free(deltaic_stops *s) {
  if (!s) return;
  for (size_t i = 0; i < s->count; i++) free(s->items[i].bytes);
  free(s->items);
  text_free(&s->out);
  text_free(&s->rest);
  free(s);
}

// ---------------------------------------------------------------- search

static bool ends_with(const struct text *held, const struct stop *stop) {
  return held->length >= stop->length && !memcmp(held->bytes + held->length - stop->length, stop->bytes, stop->length);
}

// The stop string that ends here; of several the longest, which began first.
static int32_t complete(const struct deltaic_stops *s) {
  int32_t best = -1;
  for (size_t i = 0; i < s->count; i++)
    if (ends_with(&s->out, &s->items[i]) && (best < 0 || s->items[i].length > s->items[best].length)) best = (int32_t)i;
  return best;
}

// Bytes at the end of the text that may begin a stop string.
static size_t beginning(const struct deltaic_stops *s) {
  const struct text *t = &s->out;
  size_t most = 0;
  for (size_t i = 0; i < s->count; i++) {
    size_t n = s->items[i].length - 1 < t->length ? s->items[i].length - 1 : t->length;
    while (n > most && memcmp(t->bytes + t->length - n, s->items[i].bytes, n) != 0) n--;
    if (n > most) most = n;
  }
  return most;
}

static void drop_returned(struct deltaic_stops *s) {
  if (!s->returned) return;
  s->out.length -= s->returned;
  memmove(s->out.bytes, s->out.bytes + s->returned, s->out.length);
  s->returned = 0;
}

static deltaic_status give(struct deltaic_stops *s, size_t bytes, const char **out, size_t *out_bytes) {
  if (s->out.failed || s->rest.failed) return fail_memory("held text", s->out.length);
  s->returned = bytes;
  *out = s->out.bytes ? s->out.bytes : "";
  *out_bytes = bytes;
  return DELTAIC_OK;
}

deltaic_status deltaic_stops_push(deltaic_stops *s, const char *text, size_t bytes, const char **out,
                                  size_t *out_bytes) {
  if (refuse_null("deltaic_stops_push", "stops,text,out,out_bytes", s, FILLED(text, bytes), out, out_bytes))
    return DELTAIC_INVALID_ARGUMENT;
  drop_returned(s);
  if (s->found >= 0) {
    text_append(&s->rest, text, bytes);
    return give(s, 0, out, out_bytes);
  }
  if (!s->count) {
    text_append(&s->out, text, bytes);
    return give(s, s->out.length, out, out_bytes);
  }
  for (size_t i = 0; i < bytes; i++) {
    text_append(&s->out, text + i, 1);
    s->found = complete(s);
    if (s->found < 0) continue;
    text_append(&s->rest, text + i + 1, bytes - i - 1);
    s->out.length -= s->items[s->found].length;
    return give(s, s->out.length, out, out_bytes);
  }
  return give(s, s->out.length - beginning(s), out, out_bytes);
}

deltaic_status deltaic_stops_finish(deltaic_stops *s, const char **out, size_t *out_bytes) {
  if (refuse_null("deltaic_stops_finish", "stops,out,out_bytes", s, out, out_bytes)) return DELTAIC_INVALID_ARGUMENT;
  drop_returned(s);
  return give(s, s->out.length, out, out_bytes);
}

void deltaic_stops_reset(deltaic_stops *s) {
  if (!s) return;
  s->out.length = s->rest.length = s->returned = 0;
  s->found = -1;
}

int32_t deltaic_stops_found(const deltaic_stops *s) { return s ? s->found : -1; }

const char *deltaic_stops_rest(const deltaic_stops *s, size_t *bytes) {
  if (bytes) *bytes = s ? s->rest.length : 0;
  return s && s->rest.length ? s->rest.bytes : "";
}
