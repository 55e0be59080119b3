// serve_turn: packs turns: a head, the tokens, the pending ones, how they were computed, the messages.
#include "serve_turn.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { MAGIC = 0x35545244, TEMPLATE = 40 }; // "DRT5"; bytes of the longest template's name with its NUL

struct head {
  uint32_t magic, count, pending_count, span_count, messages_bytes;
  char state[STORE_KEY], alias[STORE_KEY], template[TEMPLATE];
};

// Returns the place behind the copy.
static uint8_t *add(uint8_t *to, const void *from, size_t bytes) {
  if (bytes) memcpy(to, from, bytes);
  return to + bytes;
}

struct blob *turn_pack(const struct turn *turn) {
  const size_t word = sizeof(uint32_t), most = INT32_MAX;
  if (turn->count > most || turn->pending_count > most || turn->span_count > most || turn->messages_bytes > most)
    return NULL;
  struct head head = {MAGIC,
                      (uint32_t)turn->count,
                      (uint32_t)turn->pending_count,
                      (uint32_t)turn->span_count,
                      (uint32_t)turn->messages_bytes,
                      "",
                      "",
                      ""};
  snprintf(head.state, sizeof head.state, "%s", turn->state);
  snprintf(head.alias, sizeof head.alias, "%s", turn->alias);
  snprintf(head.template, sizeof head.template, "%s", turn->template);
  const size_t words = turn->count + turn->pending_count + turn->span_count;
  struct blob *blob = blob_create(sizeof head + words * word + turn->messages_bytes);
  if (!blob) return NULL;
  uint8_t *to = add(blob->bytes, &head, sizeof head);
  to = add(to, turn->tokens, turn->count * word);
  to = add(to, turn->pending, turn->pending_count * word);
  to = add(to, turn->spans, turn->span_count * word);
  add(to, turn->messages, turn->messages_bytes);
  return blob;
}

// The text ends within `room`, and only zeros follow it.
static bool text_valid(const char *text, size_t room) {
  const size_t length = strnlen(text, room);
  size_t end = length;
  while (end < room && !text[end]) ++end;
  return length < room && end == room;
}

// The key is plain, or empty.
static bool key_valid(const char key[STORE_KEY]) {
  return text_valid(key, STORE_KEY) && (!*key || store_key_valid(key));
}

// Ranges follow each other and end with the last token, or there are none.
static bool spans_valid(const struct turn *turn) {
  uint32_t end = 0;
  for (size_t i = 0; i < turn->span_count; ++i) {
    if (TURN_SPAN_END(turn->spans[i]) <= end) return false;
    end = TURN_SPAN_END(turn->spans[i]);
  }
  return !turn->span_count || end == turn->count;
}

static bool ids_valid(const int32_t *ids, size_t count, int32_t vocabulary) {
  for (size_t i = 0; i < count; ++i)
    if (ids[i] < 0 || ids[i] >= vocabulary) return false;
  return true;
}

bool turn_unpack(const struct blob *blob, int32_t vocabulary, struct turn *turn) {
  struct head head;
  struct turn out;
  if (blob->size < sizeof head) return false;
  memcpy(&head, blob->bytes, sizeof head);
  const uint64_t words = (uint64_t)head.count + head.pending_count + head.span_count;
  if (head.magic != MAGIC || blob->size != sizeof head + words * sizeof(uint32_t) + head.messages_bytes) return false;
  if (head.count > INT32_MAX || head.pending_count > INT32_MAX) return false;
  if (!text_valid(head.template, TEMPLATE)) return false;
  if (!key_valid(head.state) || !key_valid(head.alias) || (head.count && !*head.state)) return false;
  const uint8_t *at = blob->bytes + sizeof head; // aligned: a blob's bytes are behind a size_t
  out.state = (const char *)blob->bytes + offsetof(struct head, state);
  out.alias = (const char *)blob->bytes + offsetof(struct head, alias);
  out.template = (const char *)blob->bytes + offsetof(struct head, template);
  out.tokens = (const int32_t *)(const void *)at;
  out.count = head.count;
  out.pending = out.tokens + head.count;
  out.pending_count = head.pending_count;
  out.spans = (const uint32_t *)(const void *)(out.pending + head.pending_count);
  out.span_count = head.span_count;
  out.messages = (const char *)(out.spans + head.span_count);
  out.messages_bytes = head.messages_bytes;
  if (!spans_valid(&out) || !ids_valid(out.tokens, out.count, vocabulary) ||
      !ids_valid(out.pending, out.pending_count, vocabulary))
    return false;
  *turn = out;
  return true;
}
