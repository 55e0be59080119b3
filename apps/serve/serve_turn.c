// serve_turn: packs turns: four words, the tokens, the pending ones, the messages.
#include "serve_turn.h"
#include "sha256.h"

#include <string.h>

enum { MAGIC = 0x31545244 }; // "DRT1"

struct head {
  uint32_t magic, count, pending_count, messages_bytes;
};

struct blob *turn_pack(const struct turn *turn) {
  const size_t ids = sizeof(int32_t), most = UINT32_MAX;
  if (turn->count > most || turn->pending_count > most || turn->messages_bytes > most) return NULL;
  const struct head head = {MAGIC, (uint32_t)turn->count, (uint32_t)turn->pending_count,
                            (uint32_t)turn->messages_bytes};
  struct blob *blob = blob_create(sizeof head + (turn->count + turn->pending_count) * ids + turn->messages_bytes);
  if (!blob) return NULL;
  uint8_t *to = blob->bytes;
  memcpy(to, &head, sizeof head);
  to += sizeof head;
  if (turn->count) memcpy(to, turn->tokens, turn->count * ids);
  to += turn->count * ids;
  if (turn->pending_count) memcpy(to, turn->pending, turn->pending_count * ids);
  to += turn->pending_count * ids;
  if (turn->messages_bytes) memcpy(to, turn->messages, turn->messages_bytes);
  return blob;
}

bool turn_unpack(const struct blob *blob, struct turn *turn) {
  struct head head;
  if (blob->size < sizeof head) return false;
  memcpy(&head, blob->bytes, sizeof head);
  const uint64_t ids = (uint64_t)head.count + head.pending_count;
  if (head.magic != MAGIC || blob->size != sizeof head + ids * sizeof(int32_t) + head.messages_bytes) return false;
  const uint8_t *at = blob->bytes + sizeof head; // aligned: a blob's bytes are behind a size_t
  turn->tokens = (const int32_t *)(const void *)at;
  turn->count = head.count;
  turn->pending = turn->tokens + head.count;
  turn->pending_count = head.pending_count;
  turn->messages = (const char *)at + ids * sizeof(int32_t);
  turn->messages_bytes = head.messages_bytes;
  return true;
}

void turn_state_key(const int32_t *tokens, size_t count, char key[STORE_KEY]) {
  struct sha256 hash;
  sha256_begin(&hash);
  sha256_add(&hash, tokens, count * sizeof *tokens);
  sha256_end(&hash, key);
}
