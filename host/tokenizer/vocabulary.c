// vocabulary: stores the tokens of a tokenizer.json in a hash table that is indexed by text. Loading checks every id.
#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>

// Ids index a table, so this limits the size that a file can request. The largest known vocabularies have 2^18 tokens.
enum { MAX_ID = (1 << 22) - 1 };

static uint32_t text_hash(const char *text, size_t length) {
  uint64_t hash = 14695981039346656037u; // FNV-1a
  for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
  return (uint32_t)(hash ^ hash >> 32);
}

// Returns the table index of a text, or the free index where it would be inserted.
static uint32_t vocabulary_slot(const struct vocabulary *v, const char *text, size_t length) {
  uint32_t slot = text_hash(text, length) & v->mask;
  while (v->slots[slot]) {
    const struct token *token = &v->tokens[v->slots[slot] - 1];
    if (token->length == length && memcmp(token->text, text, length) == 0) break;
    slot = (slot + 1) & v->mask;
  }
  return slot;
}

int32_t vocabulary_find(const struct vocabulary *v, const char *text, size_t length) {
  return (int32_t)v->slots[vocabulary_slot(v, text, length)] - 1;
}

static deltaic_status check_id(const json_t *id, const char *text, struct json_reader *r) {
  if (!json_is_integer(id))
    return fail(DELTAIC_BAD_FILE, "%s: the id of token \"%s\" is not an integer", r->file, text);
  json_int_t value = json_integer_value(id);
  if (value < 0 || value > MAX_ID)
    return fail(DELTAIC_BAD_FILE, "%s: token \"%s\" has id %lld, outside 0 ... %d", r->file, text, (long long)value,
                MAX_ID);
  return DELTAIC_OK;
}

static deltaic_status check_added(const json_t *added, size_t index, struct json_reader *r) {
  const json_t *content = json_object_get(added, "content");
  if (!json_is_string(content)) return fail(DELTAIC_BAD_FILE, "%s: added token %zu has no \"content\"", r->file, index);
  if (json_string_length(content) == 0) return fail(DELTAIC_BAD_FILE, "%s: added token %zu is empty", r->file, index);
  return check_id(json_object_get(added, "id"), json_string_value(content), r);
}

// Checks every entry and adds up the sizes of the tables.
static deltaic_status vocabulary_measure(const json_t *vocab, const json_t *added, struct json_reader *r, int32_t *size,
                                         size_t *bytes) {
  const char *text;
  json_t *id;
  size_t index;
  json_int_t last = -1;
  *bytes = 0;
  json_object_foreach((json_t *)vocab, text, id) {
    deltaic_status status = check_id(id, text, r);
    if (status) return status;
    if (json_integer_value(id) > last) last = json_integer_value(id);
    *bytes += strlen(text);
  }
  json_t *entry;
  json_array_foreach(added, index, entry) {
    deltaic_status status = check_added(entry, index, r);
    if (status) return status;
    json_int_t value = json_integer_value(json_object_get(entry, "id"));
    if (value > last) last = value;
    *bytes += json_string_length(json_object_get(entry, "content"));
  }
  if (last < 0) return fail(DELTAIC_BAD_FILE, "%s: the vocabulary is empty", r->file);
  *size = (int32_t)last + 1;
  return DELTAIC_OK;
}

static deltaic_status vocabulary_allocate(struct vocabulary *v, size_t entries, size_t bytes) {
  size_t slots = 16;
  while (slots < 2 * entries) slots *= 2;
  v->tokens = calloc((size_t)v->size, sizeof *v->tokens);
  v->bytes = malloc(bytes + 1);
  v->slots = calloc(slots, sizeof *v->slots);
  v->mask = (uint32_t)(slots - 1);
  if (!v->tokens || !v->bytes || !v->slots)
    return fail_memory("a vocabulary", (size_t)v->size * sizeof *v->tokens + bytes + slots * sizeof *v->slots);
  return DELTAIC_OK;
}

// Inserts a new text into the tables. *used is the number of bytes of v->bytes that are in use.
static deltaic_status vocabulary_put(struct vocabulary *v, const char *text, size_t length, int32_t id, size_t *used,
                                     struct json_reader *r) {
  struct token *token = &v->tokens[id];
  if (token->text)
    return fail(DELTAIC_BAD_FILE, "%s: tokens \"%.*s\" and \"%s\" both have id %d", r->file, (int)token->length,
                token->text, text, (int)id);
  memcpy(v->bytes + *used, text, length);
  *token = (struct token){.text = v->bytes + *used, .length = (uint32_t)length};
  *used += length;
  v->slots[vocabulary_slot(v, text, length)] = (uint32_t)id + 1;
  return DELTAIC_OK;
}

static deltaic_status vocabulary_put_added(struct vocabulary *v, const json_t *added, size_t *used,
                                           struct json_reader *r) {
  const json_t *content = json_object_get(added, "content");
  const char *text = json_string_value(content);
  size_t length = json_string_length(content);
  int32_t id = (int32_t)json_integer_value(json_object_get(added, "id"));
  int32_t known = vocabulary_find(v, text, length);
  if (known >= 0 && known != id)
    return fail(DELTAIC_BAD_FILE, "%s: added token \"%s\" has id %d, but its text already has id %d", r->file, text,
                (int)id, (int)known);
  deltaic_status status = known >= 0 ? DELTAIC_OK : vocabulary_put(v, text, length, id, used, r);
  if (!status) v->tokens[id].special |= json_bool(r, added, "special", false);
  return status ? status : r->status;
}

deltaic_status vocabulary_load(struct vocabulary *v, const json_t *vocab, const json_t *added, struct json_reader *r) {
  size_t bytes, used = 0;
  deltaic_status status = vocabulary_measure(vocab, added, r, &v->size, &bytes);
  if (!status) status = vocabulary_allocate(v, json_object_size(vocab) + json_array_size(added), bytes);
  if (status) return status;
  const char *text;
  json_t *value;
  size_t index;
  json_object_foreach((json_t *)vocab, text, value) {
    int32_t id = (int32_t)json_integer_value(value);
    status = vocabulary_put(v, text, strlen(text), id, &used, r);
    if (status) return status;
    v->tokens[id].model = true;
  }
  json_array_foreach(added, index, value) {
    status = vocabulary_put_added(v, value, &used, r);
    if (status) return status;
  }
  return DELTAIC_OK;
}

void vocabulary_free(struct vocabulary *v) {
  free(v->tokens);
  free(v->bytes);
  free(v->slots);
  *v = (struct vocabulary){0};
}
