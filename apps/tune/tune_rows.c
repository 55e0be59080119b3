// tune_rows: the rows of a training: of texts, each pass in another order, and of tasks, where row k depends on the
// seed and k alone.
#include "tune_rows.h"
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The last steps of SplitMix64, which give adjacent numbers different states.
static uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static uint64_t seed_of(const struct tune_rows *rows, uint64_t k) {
  return mixed(mixed(rows->seed + 0x9e3779b97f4a7c15u) + k);
}

void rows_free(struct tune_rows *rows) {
  corpus_free(&rows->texts);
  free(rows->pieces);
  free(rows->order);
  if (rows->task && rows->group.order) group_free(&rows->group);
  *rows = (struct tune_rows){0};
}

// ---------------------------------------------------------------- texts

static void add_piece(struct tune_rows *rows, size_t first, uint32_t count) {
  if (count < 2) return; // nothing to predict
  if (!(rows->piece_count & (rows->piece_count + 1)))
    rows->pieces = must_resize(rows->pieces, 2 * (rows->piece_count + 1) * sizeof *rows->pieces);
  rows->pieces[rows->piece_count++] = (struct tune_piece){first, count};
  if (count > rows->length) rows->length = count;
}

static void cut(struct tune_rows *rows, size_t first, size_t end, uint32_t window) {
  for (; end - first >= window; first += window) add_piece(rows, first, window);
  add_piece(rows, first, (uint32_t)(end - first));
}

int rows_read(struct tune_rows *rows, const struct tune_reading *reading, const char *const *files, size_t count) {
  struct corpus *c = &rows->texts;
  const int code = corpus_read(c, &reading->texts, files, count);
  if (code) return code;
  if (!reading->texts.separate) cut(rows, 0, c->count, reading->window);
  for (size_t i = 0; i < c->end_count; ++i) cut(rows, i ? c->ends[i - 1] : 0, c->ends[i], reading->window);
  if (rows->piece_count > UINT32_MAX) return complain(EXIT_FAILED, "%s: too many texts", input_name(files[0]));
  if (rows->piece_count) return EXIT_OK;
  return complain(EXIT_FAILED, "%s: too short: there is nothing to predict", input_name(files[0]));
}

static void shuffle(struct tune_rows *rows, uint64_t pass) {
  const uint32_t n = (uint32_t)rows->piece_count;
  uint64_t random = seed_of(rows, pass);
  if (!rows->order)
    rows->order = must_resize(NULL, n * sizeof *rows->order);
  else if (rows->pass == pass)
    return;
  rows->pass = pass;
  for (uint32_t i = 0; i < n; ++i) rows->order[i] = i;
  for (uint32_t i = n; i > 1 && !rows->in_order; --i) {
    const uint32_t k = random_below(&random, i), kept = rows->order[i - 1];
    rows->order[i - 1] = rows->order[k];
    rows->order[k] = kept;
  }
}

static void fill_text(struct tune_rows *rows, uint64_t k, int32_t *tokens, int32_t *targets) {
  shuffle(rows, k / rows->piece_count);
  const struct tune_piece *piece = &rows->pieces[rows->order[k % rows->piece_count]];
  memcpy(tokens, rows->texts.tokens + piece->first, piece->count * sizeof *tokens);
  for (uint32_t i = piece->count; i < rows->length; ++i) tokens[i] = 0;
  for (uint32_t i = 0; i + 1 < rows->length; ++i) targets[i] = i + 1 < piece->count ? tokens[i + 1] : -1;
}

// ---------------------------------------------------------------- tasks

// After the begin token, elements; the target of each is the product of all up to it.
static void fill_group(const struct tune_rows *rows, uint64_t *random, int32_t *tokens, int32_t *targets) {
  uint32_t product = 0;
  for (uint32_t i = 1; i + 1 < rows->length; ++i) {
    const uint32_t element = random_below(random, rows->group.order);
    product = group_after(&rows->group, element, product);
    tokens[i] = 1 + (int32_t)element;
    targets[i] = 1 + (int32_t)product;
  }
}

// After the begin token, pairs of a key and a value with different keys, then some of the keys again, each followed by
// its value, which is the key's target.
static void fill_recall(const struct tune_rows *rows, uint64_t *random, int32_t *tokens, int32_t *targets) {
  uint32_t *keys = must_resize(NULL, (rows->keys + rows->pairs) * sizeof *keys), *values = keys + rows->keys, at = 1;
  for (uint32_t i = 0; i < rows->keys; ++i) keys[i] = i;
  for (uint32_t i = 0; i < rows->pairs; ++i) {
    const uint32_t k = i + random_below(random, rows->keys - i), kept = keys[i];
    keys[i] = keys[k];
    keys[k] = kept;
    values[i] = random_below(random, rows->values);
  }
  for (uint32_t n = 0; at + 2 < rows->length; ++n, at += 2) {
    const uint32_t i = n < rows->pairs ? n : random_below(random, rows->pairs);
    tokens[at] = 1 + (int32_t)keys[i];
    tokens[at + 1] = 1 + (int32_t)(rows->keys + values[i]);
    if (n >= rows->pairs) targets[at] = tokens[at + 1];
  }
  free(keys);
}

void rows_fill(struct tune_rows *rows, uint64_t k, int32_t *tokens, int32_t *targets) {
  if (!rows->task) {
    fill_text(rows, k, tokens, targets);
    return;
  }
  uint64_t random = seed_of(rows, k);
  memset(tokens, 0, rows->length * sizeof *tokens);
  for (uint32_t i = 0; i + 1 < rows->length; ++i) targets[i] = -1;
  (rows->group.order ? fill_group : fill_recall)(rows, &random, tokens, targets);
}

int rows_of_group(struct tune_rows *rows, const char *name, uint32_t length) {
  if (!group_make(name, false, &rows->group))
    return complain(EXIT_USAGE, "there is no group \"%s\"; S2 to S6, A5, Z2 to Z1024, D3 to D512", name);
  rows->task = true;
  rows->length = length + 2;
  return EXIT_OK;
}

int rows_of_recall(struct tune_rows *rows, uint32_t length) {
  rows->task = true;
  rows->length = length + 2;
  if (rows->pairs > rows->keys)
    return complain(EXIT_USAGE, "--pairs %u needs as many --keys, not %u", rows->pairs, rows->keys);
  if (length < 2 * rows->pairs + 2)
    return complain(EXIT_USAGE, "--window %u is too short for --pairs %u: they and a query are %u tokens", length,
                    rows->pairs, 2 * rows->pairs + 2);
  return EXIT_OK;
}

char **rows_words(const struct tune_rows *rows, size_t *count) {
  const size_t n = 1 + (rows->group.order ? rows->group.order : rows->keys + rows->values);
  char **words = must_resize(NULL, n * sizeof *words), text[24] = "<s>";
  for (size_t i = 0; i < n; ++i) {
    const bool key = i <= rows->keys;
    if (i && rows->group.order)
      snprintf(text, sizeof text, "%s", rows->group.names[i - 1]);
    else if (i)
      snprintf(text, sizeof text, key ? "k%zu" : "v%zu", key ? i - 1 : i - 1 - rows->keys);
    words[i] = must_resize(NULL, strlen(text) + 1);
    strcpy(words[i], text);
  }
  *count = n;
  return words;
}

// ---------------------------------------------------------------- checksum

static uint64_t hash_add(uint64_t hash, const void *data, size_t bytes) { // FNV-1a
  const unsigned char *at = data;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3u;
  return hash;
}

uint64_t rows_hash(const struct tune_rows *rows) {
  const uint64_t sizes[] = {rows->length,      rows->texts.count, rows->piece_count, rows->task,
                            rows->group.order, rows->pairs,       rows->keys,        rows->values};
  uint64_t hash = hash_add(0xcbf29ce484222325u, sizes, sizeof sizes);
  for (size_t i = 0; i < rows->piece_count; ++i) {
    hash = hash_add(hash, &rows->pieces[i].count, sizeof rows->pieces[i].count);
    hash =
        hash_add(hash, rows->texts.tokens + rows->pieces[i].first, rows->pieces[i].count * sizeof *rows->texts.tokens);
  }
  if (rows->group.order) hash = hash_add(hash, rows->group.name, strlen(rows->group.name));
  return hash;
}
