// fuzz_chat: arbitrary messages in every chat template, as text and as ids, and arbitrary parts of a text with stop
// strings. The first byte chooses the template, the second the options; 0xFF ends a message, whose first byte is its
// role.
#include "tokenizer.h"

enum { MOST = 16, ROOM = 1 << 16 };

static void check(bool good) {
  if (!good) abort();
}

// What is rendered from message `first` on ends the whole.
static void render(const deltaic_template *t, const deltaic_message *messages, size_t n, deltaic_render_options o) {
  static char whole[ROOM], part[ROOM];
  static deltaic_tokenizer *tokenizer;
  static int32_t ids[ROOM];
  size_t bytes = 0, length = 0, count = 0, first = o.first;
  if (!tokenizer) check(!deltaic_tokenizer_open(TESTS_DIR "/vectors/tokenizer/sp.json", &tokenizer));
  o.first = 0;
  if (deltaic_template_render(t, messages, n, &o, whole, ROOM, &bytes)) {
    check(deltaic_last_error()[0] != 0);
    return;
  }
  o.first = first;
  check(!deltaic_template_render(t, messages, n, &o, part, ROOM, &length));
  check(length <= bytes && !memcmp(part, whole + bytes - length, length));
  const deltaic_ids to = {ids, ROOM, &count};
  check(!deltaic_template_encode(t, tokenizer, messages, n, &o, &to) && count <= length + 1);
}

static void stop(const deltaic_message *messages, size_t n) {
  char stops[MOST][64];
  const char *texts[MOST];
  deltaic_stops *s;
  const char *out;
  size_t bytes, said = 0, pushed = 0;
  for (size_t i = 0; i < n; i++) {
    size_t length = messages[i].bytes < 63 ? messages[i].bytes : 63;
    memcpy(stops[i], messages[i].text, length);
    stops[i][length] = 0;
    texts[i] = stops[i];
  }
  if (deltaic_stops_create(texts, n / 2, &s)) return;
  for (size_t i = n / 2; i < n; i++) {
    check(!deltaic_stops_push(s, messages[i].text, messages[i].bytes, &out, &bytes));
    said += bytes;
    pushed += messages[i].bytes;
  }
  check(!deltaic_stops_finish(s, &out, &bytes));
  said += bytes;
  deltaic_stops_rest(s, &bytes);
  const int32_t found = deltaic_stops_found(s);
  check(said + bytes + (found < 0 ? 0 : strlen(texts[found])) == pushed);
  deltaic_stops_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  deltaic_message messages[MOST];
  size_t n = 0, at = 2, templates = 0;
  if (size < 3 || size > 4096) return 0;
  while (deltaic_template_at(templates)) templates++;
  while (at < size && n < MOST) {
    const uint8_t *end = memchr(data + at, 0xFF, size - at);
    size_t stop_at = end ? (size_t)(end - data) : size;
    if (stop_at > at)
      messages[n++] = (deltaic_message){(deltaic_role)(data[at] % 3), (const char *)data + at + 1, stop_at - at - 1};
    at = stop_at + 1;
  }
  deltaic_render_options o = DELTAIC_INIT(deltaic_render_options);
  o.answer = data[1] & 1;
  o.earlier = data[1] & 2;
  o.thinking = (deltaic_thinking)(data[1] / 4 % 3);
  o.first = n ? data[1] / 16 % (n + 1) : 0;
  render(deltaic_template_at(data[0] % templates), messages, n, o);
  stop(messages, n);
  return 0;
}
