// vocabulary: stores the tokens of a tokenizer in a hash table that is indexed by text. Loading checks every id.
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

// How much of a text a message shows.
static int shown(const struct vocabulary_entry *e) { return e->length < 100 ? (int)e->length : 100; }

// Checks every entry and adds up the sizes of the tables.
static deltaic_status measure(const struct vocabulary_entry *entries, size_t count, const char *file, int32_t *size,
                              size_t *bytes) {
  int64_t last = -1;
  *bytes = 0;
  for (size_t i = 0; i < count; i++) {
    const struct vocabulary_entry *e = &entries[i];
    if (e->id < 0 || e->id > MAX_ID)
      return fail(DELTAIC_BAD_FILE, "%s: token \"%.*s\" has id %lld, outside 0 ... %d", file, shown(e), e->text,
                  (long long)e->id, MAX_ID);
    if (e->id > last) last = e->id;
    *bytes += e->length;
  }
  if (last < 0) return fail(DELTAIC_BAD_FILE, "%s: the vocabulary is empty", file);
  *size = (int32_t)last + 1;
  return DELTAIC_OK;
}

static deltaic_status allocate(struct vocabulary *v, size_t entries, size_t bytes) {
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

// Inserts an entry into the tables. *used is the number of bytes of v->bytes that are in use.
static deltaic_status put(struct vocabulary *v, const struct vocabulary_entry *e, size_t *used, const char *file) {
  struct token *token = &v->tokens[e->id];
  const uint32_t slot = vocabulary_slot(v, e->text, e->length);
  const int64_t known = (int64_t)v->slots[slot] - 1;
  if (known >= 0 && known != e->id && e->added)
    return fail(DELTAIC_BAD_FILE, "%s: added token \"%.*s\" has id %lld, but its text already has id %lld", file,
                shown(e), e->text, (long long)e->id, (long long)known);
  if (known >= 0 && known != e->id)
    return fail(DELTAIC_BAD_FILE, "%s: tokens %lld and %lld are both \"%.*s\"", file, (long long)known,
                (long long)e->id, shown(e), e->text);
  if (known < 0 && token->text)
    return fail(DELTAIC_BAD_FILE, "%s: tokens \"%.*s\" and \"%.*s\" both have id %lld", file, (int)token->length,
                token->text, shown(e), e->text, (long long)e->id);
  if (known < 0) {
    memcpy(v->bytes + *used, e->text, e->length);
    *token = (struct token){.text = v->bytes + *used, .length = (uint32_t)e->length};
    *used += e->length;
    v->slots[slot] = (uint32_t)e->id + 1;
  }
  token->model |= !e->added;
  token->special |= e->special;
  return DELTAIC_OK;
}

deltaic_status vocabulary_load(struct vocabulary *v, const struct vocabulary_entry *entries, size_t count,
                               const char *file) {
  size_t bytes, used = 0;
  deltaic_status status = measure(entries, count, file, &v->size, &bytes);
  if (!status) status = allocate(v, count, bytes);
  for (size_t i = 0; i < count && !status; i++) status = put(v, &entries[i], &used, file);
  return status;
}

void vocabulary_free(struct vocabulary *v) {
  free(v->tokens);
  free(v->bytes);
  free(v->slots);
  *v = (struct vocabulary){0};
}

// ---------------------------------------------------------------- tokenizer.json

static deltaic_status read_id(const json_t *id, const char *text, struct json_reader *r, int64_t *out) {
  *out = json_integer_value(id);
  if (json_is_integer(id)) return DELTAIC_OK;
  return fail(DELTAIC_BAD_FILE, "%s: the id of token \"%s\" is not an integer", r->file, text);
}

static deltaic_status read_added(const json_t *added, size_t index, struct json_reader *r,
                                 struct vocabulary_entry *out) {
  const json_t *content = json_object_get(added, "content");
  if (!json_is_string(content)) return fail(DELTAIC_BAD_FILE, "%s: added token %zu has no \"content\"", r->file, index);
  *out = (struct vocabulary_entry){
      .text = json_string_value(content), .length = json_string_length(content), .added = true};
  if (!out->length) return fail(DELTAIC_BAD_FILE, "%s: added token %zu is empty", r->file, index);
  out->special = json_bool(r, added, "special", false);
  return r->status ? r->status : read_id(json_object_get(added, "id"), out->text, r, &out->id);
}

deltaic_status vocabulary_entries(const json_t *vocab, const json_t *added, struct json_reader *r,
                                  struct vocabulary_entry **entries, size_t *count) {
  const size_t most = json_object_size(vocab) + json_array_size(added);
  struct vocabulary_entry *list = *entries = calloc(most + 1, sizeof *list);
  deltaic_status status = list ? DELTAIC_OK : fail_memory("a vocabulary", (most + 1) * sizeof *list);
  const char *text;
  json_t *value;
  size_t index, n = 0;
  json_object_foreach((json_t *)vocab, text, value) {
    if (status) break;
    list[n] = (struct vocabulary_entry){.text = text, .length = strlen(text)};
    status = read_id(value, text, r, &list[n++].id);
  }
  json_array_foreach(added, index, value) {
    if (status) break;
    status = read_added(value, index, r, &list[n++]);
  }
  *count = n;
  return status;
}
