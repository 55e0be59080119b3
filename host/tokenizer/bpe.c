// bpe: implements byte-pair encoding (Sennrich et al. 2016) as HuggingFace tokenizers does. A word starts as one symbol
// per character; the leftmost adjacent pair of the lowest rank is merged until no pair has a merge. Loading checks
// every merge. pretokenize.c splits a text into words.
#include "bpe.h"

#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MERGES = 1 << 24 }; // limits the table size that a file can request

// ---------------------------------------------------------------- merges

static uint64_t merge_pair(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

// Returns the entry of the pair's merge, or the free entry where it would be inserted.
static struct merge *merge_slot(const struct bpe *bpe, uint64_t pair) {
  uint32_t slot = (uint32_t)(pair * 0x9E3779B97F4A7C15u >> 32) & bpe->mask;
  while (bpe->merges[slot].id >= 0 && bpe->merges[slot].pair != pair) slot = (slot + 1) & bpe->mask;
  return &bpe->merges[slot];
}

static int32_t model_find(const struct vocabulary *v, const char *text, size_t length) {
  int32_t id = vocabulary_find(v, text, length);
  return id >= 0 && v->tokens[id].model ? id : -1;
}

bool merge_cut(const char *text, size_t length, struct merge_texts *out) {
  const char *space = memchr(text, ' ', length);
  if (!space || memchr(space + 1, ' ', (size_t)(text + length - space - 1))) return false;
  *out = (struct merge_texts){text, space + 1, (size_t)(space - text), (size_t)(text + length - space - 1)};
  return true;
}

static deltaic_status merge_put(struct bpe *bpe, const struct merge_texts *m, size_t rank, struct text *joined,
                                struct json_reader *r) {
  joined->length = 0;
  text_append(joined, m->left, m->left_length);
  text_append(joined, m->right, m->right_length);
  if (joined->failed) return fail_memory("a merge", m->left_length + m->right_length);
  const int32_t left = model_find(bpe->vocabulary, m->left, m->left_length);
  const int32_t right = model_find(bpe->vocabulary, m->right, m->right_length);
  const int32_t id = model_find(bpe->vocabulary, joined->bytes, joined->length);
  if (left < 0 || right < 0 || id < 0)
    return fail(DELTAIC_BAD_FILE, "%s: merge %zu needs \"%.*s\", which is not in the vocabulary", r->file, rank,
                (int)(left < 0    ? m->left_length
                      : right < 0 ? m->right_length
                                  : joined->length),
                left < 0    ? m->left
                : right < 0 ? m->right
                            : joined->bytes);
  const uint64_t pair = merge_pair(left, right);
  *merge_slot(bpe, pair) = (struct merge){.pair = pair, .rank = (uint32_t)rank, .id = id};
  return DELTAIC_OK;
}

static deltaic_status merges_load(struct bpe *bpe, const struct merge_texts *merges, size_t count,
                                  struct json_reader *r) {
  size_t slots = 16;
  if (count > MAX_MERGES)
    return fail(DELTAIC_BAD_FILE, "%s: %zu merges, more than %d", r->file, count, (int)MAX_MERGES);
  while (slots < 2 * count) slots *= 2;
  bpe->merges = malloc(slots * sizeof *bpe->merges);
  if (!bpe->merges) return fail_memory("the merges", slots * sizeof *bpe->merges);
  for (size_t i = 0; i < slots; i++) bpe->merges[i].id = -1;
  bpe->mask = (uint32_t)(slots - 1);
  struct text joined = {0};
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < count && !status; i++)
    if (merges[i].left) status = merge_put(bpe, &merges[i], i, &joined, r);
  text_free(&joined);
  return status;
}

// The file may write a merge as "a b" or as ["a", "b"].
static bool read_merge(const json_t *entry, struct merge_texts *out) {
  const char *line = json_string_value(entry);
  if (line && !strncmp(line, "#version", 8)) return true; // this is the first line of a merges.txt
  if (line) return merge_cut(line, json_string_length(entry), out);
  const json_t *left = json_array_get(entry, 0), *right = json_array_get(entry, 1);
  *out = (struct merge_texts){json_string_value(left), json_string_value(right), json_string_length(left),
                              json_string_length(right)};
  return json_array_size(entry) == 2 && out->left && out->right;
}

deltaic_status bpe_merges(const json_t *model, struct json_reader *r, struct merge_texts **merges, size_t *count) {
  const json_t *list = json_object_get(model, "merges");
  *merges = NULL;
  *count = json_array_size(list);
  if (!json_is_array(list)) return fail(DELTAIC_BAD_FILE, "%s: \"merges\" is missing or not an array", r->file);
  *merges = calloc(*count + 1, sizeof **merges);
  if (!*merges) return fail_memory("the merges", (*count + 1) * sizeof **merges);
  for (size_t i = 0; i < *count; i++)
    if (!read_merge(json_array_get(list, i), &(*merges)[i]))
      return fail(DELTAIC_BAD_FILE, "%s: merge %zu is not a pair of texts", r->file, i);
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- model

static deltaic_status refuse_unsupported(const json_t *model, struct json_reader *r) {
  static const char *affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  for (int i = 0; i < 2; i++) {
    const char *affix = json_text(r, model, affixes[i], "");
    if (*affix) return fail(DELTAIC_UNSUPPORTED, "%s: %s \"%s\" is not supported", r->file, affixes[i], affix);
  }
  if (json_number(r, model, "dropout", 0, 0, 1) != 0)
    return fail(DELTAIC_UNSUPPORTED, "%s: dropout is not supported", r->file);
  return r->status;
}

static void bytes_find(struct bpe *bpe) {
  for (int i = 0; i < 256; i++) {
    char text[8];
    snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
    bpe->bytes[i] = bpe->byte_fallback ? model_find(bpe->vocabulary, text, 6) : -1;
  }
}

deltaic_status bpe_load(struct bpe *bpe, const struct vocabulary *vocabulary, const json_t *model,
                        const struct merge_texts *merges, size_t count, struct json_reader *r) {
  deltaic_status status = refuse_unsupported(model, r);
  if (status) return status;
  bpe->vocabulary = vocabulary;
  bpe->byte_fallback = json_bool(r, model, "byte_fallback", false);
  bpe->fuse_unknown = json_bool(r, model, "fuse_unk", false);
  bpe->ignore_merges = json_bool(r, model, "ignore_merges", false);
  const char *unknown = json_text(r, model, "unk_token", "");
  bpe->unknown = *unknown ? vocabulary_find(vocabulary, unknown, strlen(unknown)) : -1;
  if (r->status) return r->status;
  if (*unknown && bpe->unknown < 0)
    return fail(DELTAIC_BAD_FILE, "%s: unk_token \"%s\" is not in the vocabulary", r->file, unknown);
  bytes_find(bpe);
  return merges_load(bpe, merges, count, r);
}

void bpe_free(struct bpe *bpe) {
  free(bpe->merges);
  *bpe = (struct bpe){0};
}

// ---------------------------------------------------------------- encoding

bool ids_append(struct ids *ids, const int32_t *items, size_t count) {
  if (count > SIZE_MAX / 2 / sizeof *items - ids->count) return false;
  if (ids->count + count > ids->capacity) {
    size_t capacity = ids->capacity ? ids->capacity * 2 : 64;
    if (capacity < ids->count + count) capacity = ids->count + count;
    int32_t *grown = realloc(ids->items, capacity * sizeof *grown);
    if (!grown) return false;
    ids->items = grown;
    ids->capacity = capacity;
  }
  if (count) memcpy(ids->items + ids->count, items, count * sizeof *items);
  ids->count += count;
  return true;
}

// A symbol of the word. The symbols form a doubly linked list in an array, so a merge costs O(1).
struct symbol {
  int32_t id;         // -1: it was merged into its left neighbour
  int32_t prev, next; // indices; -1 at the ends
};

// A merge that was possible when it was queued. It is checked again when it is removed from the queue.
struct candidate {
  uint32_t rank;
  int32_t position; // index of the left symbol
  int32_t id;       // id of the merged symbol
};

struct word {
  const struct bpe *bpe;
  struct symbol *symbols;
  struct candidate *heap; // the top has the lowest rank; ties go to the leftmost
  int32_t count, heap_count;
};

void bpe_scratch_free(struct bpe_scratch *scratch) {
  free(scratch->symbols);
  free(scratch->heap);
  *scratch = (struct bpe_scratch){0};
}

// Reserves memory for a word of `length` bytes, which has at most one symbol per byte. Each merge removes one candidate
// and adds at most two, and there are fewer merges than symbols.
static deltaic_status scratch_reserve(struct bpe_scratch *scratch, size_t length) {
  if (length <= scratch->capacity) return DELTAIC_OK;
  if (length > INT32_MAX / 2) return fail(DELTAIC_UNSUPPORTED, "a word of %zu bytes is too long to encode", length);
  size_t capacity = length < 256 ? 256 : length;
  bpe_scratch_free(scratch);
  scratch->symbols = malloc(capacity * sizeof *scratch->symbols);
  scratch->heap = malloc(2 * capacity * sizeof *scratch->heap);
  if (!scratch->symbols || !scratch->heap) {
    bpe_scratch_free(scratch);
    return fail_memory("a word", capacity * (sizeof *scratch->symbols + 2 * sizeof *scratch->heap));
  }
  scratch->capacity = capacity;
  return DELTAIC_OK;
}

static bool before(struct candidate a, struct candidate b) {
  return a.rank != b.rank ? a.rank < b.rank : a.position < b.position;
}

static void heap_push(struct word *w, struct candidate c) {
  int32_t at = w->heap_count++;
  for (; at > 0 && before(c, w->heap[(at - 1) / 2]); at = (at - 1) / 2) w->heap[at] = w->heap[(at - 1) / 2];
  w->heap[at] = c;
}

static struct candidate heap_pop(struct word *w) {
  struct candidate top = w->heap[0], last = w->heap[--w->heap_count];
  int32_t at = 0;
  for (;;) {
    int32_t child = 2 * at + 1;
    if (child >= w->heap_count) break;
    if (child + 1 < w->heap_count && before(w->heap[child + 1], w->heap[child])) child++;
    if (!before(w->heap[child], last)) break;
    w->heap[at] = w->heap[child];
    at = child;
  }
  w->heap[at] = last;
  return top;
}

static void word_append(struct word *w, int32_t id) {
  int32_t at = w->count++;
  w->symbols[at] = (struct symbol){.id = id, .prev = at - 1, .next = -1};
  if (at > 0) w->symbols[at - 1].next = at;
}

static void queue_pair(struct word *w, int32_t position) {
  int32_t next = position < 0 ? -1 : w->symbols[position].next;
  if (next < 0) return;
  const struct merge *merge = merge_slot(w->bpe, merge_pair(w->symbols[position].id, w->symbols[next].id));
  if (merge->id >= 0) heap_push(w, (struct candidate){merge->rank, position, merge->id});
}

// Appends the byte tokens of a character if all of them exist.
static bool append_bytes(struct word *w, const char *character, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (w->bpe->bytes[(unsigned char)character[i]] < 0) return false;
  for (size_t i = 0; i < length; i++) word_append(w, w->bpe->bytes[(unsigned char)character[i]]);
  return true;
}

// Appends one symbol per character. An unknown character is held until the next known one, so that adjacent unknown
// characters can fuse. Byte tokens do not end the hold (as in HuggingFace).
static void word_split(struct word *w, const char *text, size_t length) {
  bool waiting = false;
  for (size_t at = 0, step; at < length; at += step) {
    step = utf8_length(text[at]);
    int32_t id = model_find(w->bpe->vocabulary, text + at, step);
    if (id < 0 && append_bytes(w, text + at, step)) continue;
    if (id < 0 && w->bpe->unknown < 0) continue;
    if (waiting && (id >= 0 || !w->bpe->fuse_unknown)) word_append(w, w->bpe->unknown);
    if (id >= 0) word_append(w, id);
    waiting = id < 0;
  }
  if (waiting) word_append(w, w->bpe->unknown);
}

static void word_merge(struct word *w) {
  for (int32_t i = 0; i < w->count; i++) queue_pair(w, i);
  while (w->heap_count > 0) {
    struct candidate top = heap_pop(w);
    struct symbol *left = &w->symbols[top.position];
    if (left->id < 0 || left->next < 0) continue;
    struct symbol *right = &w->symbols[left->next];
    if (merge_slot(w->bpe, merge_pair(left->id, right->id))->id != top.id) continue; // a neighbour has changed
    left->id = top.id;
    left->next = right->next;
    right->id = -1;
    if (left->next >= 0) w->symbols[left->next].prev = top.position;
    queue_pair(w, left->prev);
    queue_pair(w, top.position);
  }
}

deltaic_status bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *text, size_t length,
                          struct ids *out) {
  int32_t whole = bpe->ignore_merges ? model_find(bpe->vocabulary, text, length) : -1;
  if (whole >= 0) return ids_append(out, &whole, 1) ? DELTAIC_OK : fail_memory("token ids", sizeof whole);
  deltaic_status status = scratch_reserve(scratch, length);
  if (status) return status;
  struct word w = {.bpe = bpe, .symbols = scratch->symbols, .heap = scratch->heap};
  word_split(&w, text, length);
  word_merge(&w);
  for (int32_t i = 0; i < w.count; i++)
    if (w.symbols[i].id >= 0 && !ids_append(out, &w.symbols[i].id, 1))
      return fail_memory("token ids", out->capacity * 2 * sizeof(int32_t));
  return DELTAIC_OK;
}
