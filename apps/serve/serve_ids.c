// serve_ids: lists of tokens of a request, and what goes wrong while they are made.
#include "serve_prepare.h"

#include <stdlib.h>
#include <string.h>

enum { SPARE = 64 }; // tokens beside those of the text

bool prepare_failed(struct problem *p, deltaic_status status) {
  if (!status) return false;
  problem_set(p, status == DELTAIC_OUT_OF_MEMORY ? 500 : 400, "", "", "%s", deltaic_last_error());
  return true;
}

void prepare_no_memory(struct problem *p) { problem_set(p, 500, "", "", "out of memory"); }

bool ids_add(struct ids *to, const int32_t *ids, size_t count, struct problem *p) {
  int32_t *grown = realloc(to->items, (to->count + count) * sizeof *grown + 1);
  if (!grown) {
    prepare_no_memory(p);
    return false;
  }
  if (count) memcpy(grown + to->count, ids, count * sizeof *ids);
  to->items = grown;
  to->count += count;
  return true;
}

bool ids_add_text(const struct server *s, struct ids *to, const char *text, size_t bytes, bool special,
                  struct problem *p) {
  size_t room, count = bytes / 2 + SPARE; // mostly enough, so that a text is encoded once
  int32_t *ids = NULL;
  deltaic_status status;
  do {
    free(ids);
    room = count;
    ids = malloc(room * sizeof *ids);
    status = ids ? deltaic_tokenizer_encode(s->tokenizer, text, bytes, special, ids, room, &count) : DELTAIC_OK;
  } while (status == DELTAIC_BUFFER_TOO_SMALL);
  if (!ids) prepare_no_memory(p);
  const bool good = ids && !prepare_failed(p, status) && ids_add(to, ids, count, p);
  free(ids);
  return good;
}

bool ids_add_tokens(const struct server *s, struct ids *to, const json_t *tokens, struct problem *p) {
  const size_t count = json_array_size(tokens);
  int32_t *ids = malloc(count * sizeof *ids + 1);
  if (!ids) prepare_no_memory(p);
  for (size_t i = 0; i < count && !p->status; ++i) {
    const json_int_t value = json_integer_value(json_array_get(tokens, i));
    ids[i] = (int32_t)value;
    if (value >= s->engine.model_info.vocabulary)
      problem_set(p, 400, "prompt", "", "token %lld is not below the vocabulary's %d", (long long)value,
                  s->engine.model_info.vocabulary);
  }
  const bool good = !p->status && ids_add(to, ids, count, p);
  free(ids);
  return good;
}
