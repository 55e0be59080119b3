// added_tokens: finds added tokens in a text. The longest match is found by narrowing the sorted list byte by byte.
#include "added_tokens.h"

static int compare_added(const void *left, const void *right) {
  const struct added_token *a = left, *b = right;
  size_t common = a->length < b->length ? a->length : b->length;
  int order = memcmp(a->text, b->text, common);
  return order ? order : a->length < b->length ? -1 : a->length > b->length;
}

static void added_sort(struct added_tokens *added) {
  qsort(added->items, added->count, sizeof *added->items, compare_added);
  size_t at = 0;
  for (size_t b = 0; b < 257; b++) {
    while (at < added->count && (unsigned char)added->items[at].text[0] < b) at++;
    added->begin[b] = at;
  }
}

void added_free(struct added_tokens *added) {
  for (size_t i = 0; i < added->count; i++) free(added->items[i].text);
  free(added->items);
}

// Sets the token's text to search for: the file's content, or its normalized form if there are normalizers.
static deltaic_status added_text(const char *content, const struct steps *normalizers, struct added_token *token) {
  struct text text = {0};
  bool first = true;
  deltaic_status status = DELTAIC_OK;
  if (normalizers)
    status = normalize(normalizers, content, strlen(content), &first, &text);
  else
    text_append(&text, content, strlen(content));
  if (!status && text.failed) status = fail_memory("an added token", strlen(content));
  if (status) text_free(&text);
  token->text = text.bytes;
  token->length = text.length;
  return status;
}

static deltaic_status added_append(struct added_tokens *added, const json_t *value, const struct steps *normalizers,
                                   struct json_reader *r) {
  bool special = json_bool(r, value, "special", false);
  bool normalized = json_bool(r, value, "normalized", !special);
  struct added_token token = {.id = (int32_t)json_integer_value(json_object_get(value, "id")),
                              .special = special,
                              .single_word = json_bool(r, value, "single_word", false),
                              .left = json_bool(r, value, "lstrip", false),
                              .right = json_bool(r, value, "rstrip", false)};
  if (r->status || normalized != (normalizers != NULL)) return r->status;
  deltaic_status status = added_text(json_string_value(json_object_get(value, "content")), normalizers, &token);
  if (!status && token.length > 0)
    added->items[added->count++] = token;
  else
    free(token.text); // an empty text is never found
  return status;
}

deltaic_status added_load(struct added_tokens *added, const json_t *values, const struct steps *normalizers,
                          struct json_reader *r) {
  size_t count = json_array_size(values), index;
  added->items = calloc(count + 1, sizeof *added->items);
  if (!added->items) return fail_memory("the added tokens", (count + 1) * sizeof *added->items);
  json_t *value;
  json_array_foreach(values, index, value) {
    deltaic_status status = added_append(added, value, normalizers, r);
    if (status) return status;
  }
  added_sort(added);
  return DELTAIC_OK;
}

// Returns the first item of [begin, end) whose byte at `depth` is at least `byte`. All items are longer than depth.
static size_t added_bound(const struct added_tokens *added, size_t begin, size_t end, size_t depth, unsigned byte) {
  while (begin < end) {
    size_t middle = begin + (end - begin) / 2;
    if ((unsigned char)added->items[middle].text[depth] < byte)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

// Returns the longest added token that begins the text, or NULL. It narrows the range of tokens byte by byte.
static const struct added_token *added_match(const struct added_tokens *added, const char *text, size_t length) {
  const struct added_token *best = NULL;
  unsigned char lead = (unsigned char)text[0];
  size_t begin = added->begin[lead], end = added->begin[lead + 1];
  for (size_t depth = 1; begin < end; depth++) {
    for (; begin < end && added->items[begin].length == depth; begin++)
      if (!added->items[begin].special || !added->skip_special) best = &added->items[begin];
    if (depth == length) break;
    unsigned next = (unsigned char)text[depth];
    begin = added_bound(added, begin, end, depth, next);
    end = added_bound(added, begin, end, depth, next + 1);
  }
  return best;
}

static size_t character_before(const char *text, size_t at) {
  do at--;
  while (((unsigned char)text[at] & 0xC0) == 0x80);
  return at;
}

static bool stands_alone(const char *text, size_t length, size_t begin, size_t end) {
  return (begin == 0 || !is_word(utf8_decode(text + character_before(text, begin)))) &&
         (end == length || !is_word(utf8_decode(text + end)));
}

deltaic_status added_split(const struct added_tokens *added, size_t begin, size_t length, bool first,
                           struct pieces *pieces) {
  const char *text = pieces->text.bytes + begin;
  size_t done = 0; // the text before this offset is already in pieces
  deltaic_status status = DELTAIC_OK;
  for (size_t at = 0; at < length && added->count > 0 && !status;) {
    const struct added_token *token = added_match(added, text + at, length - at);
    if (!token) {
      at++;
      continue;
    }
    size_t from = at, to = at + token->length;
    at = to;
    if (token->single_word && !stands_alone(text, length, from, to)) continue;
    while (token->left && from > done && is_space(utf8_decode(text + character_before(text, from))))
      from = character_before(text, from);
    while (token->right && to < length && is_space(utf8_decode(text + to))) to += utf8_length(text[to]);
    if (done < from) status = pieces_append(pieces, (struct piece){begin + done, from - done, -1, first && done == 0});
    if (!status) status = pieces_append(pieces, (struct piece){.id = token->id});
    done = to;
  }
  if (!status && done < length)
    status = pieces_append(pieces, (struct piece){begin + done, length - done, -1, first && done == 0});
  return status;
}
