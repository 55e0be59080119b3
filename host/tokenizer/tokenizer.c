// tokenizer: HuggingFace's tokenizer.json: text -> ids, and the public functions. In this order: added tokens are
// found in the text as it stands, what lies between them is normalized, further added tokens are found in that,
// the rest is cut into words (pretokenize.c), and each word is merged (bpe.c). decoder.c goes the other way.
#include "tokenizer.h"

#include "file.h"

#include <sys/stat.h>

// Ids that a post-processor may add, the text itself counting as one.
enum { MAX_TEMPLATE = 256, TEXT_ITSELF = -1 };

// A token that is looked for in the text before merging.
struct added_token {
  char *text;
  size_t length;
  int32_t id;
  bool single_word; // only where no letter or digit touches it
  bool left, right; // takes the white space before, after it
};

// Sorted by text, so that those with a common beginning are neighbours.
struct added_tokens {
  struct added_token *items;
  size_t count;
  size_t begin[257]; // items whose first byte is b are begin[b] ... begin[b + 1]
};

struct deltaic_tokenizer {
  struct vocabulary vocabulary;
  struct bpe bpe;
  struct added_tokens raw;        // looked for in the text as it stands
  struct added_tokens normalized; // looked for in the normalized text
  struct steps normalizers, pretokenizers;
  struct decode_steps decoders;
  int32_t template[MAX_TEMPLATE]; // ids and TEXT_ITSELF
  size_t template_count;
};

// ---------------------------------------------------------------- added tokens

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

static void added_free(struct added_tokens *added) {
  for (size_t i = 0; i < added->count; i++) free(added->items[i].text);
  free(added->items);
}

// The text to look for: as the file has it, or normalized.
static deltaic_status added_text(const deltaic_tokenizer *t, const char *content, bool normalized,
                                 struct added_token *token) {
  struct text text = {0};
  bool first = true;
  deltaic_status status = DELTAIC_OK;
  if (normalized) status = normalize(&t->normalizers, content, strlen(content), &first, &text);
  if (!normalized) text_append(&text, content, strlen(content));
  if (!status && text.failed) status = fail_memory("an added token", strlen(content));
  if (status) text_free(&text);
  token->text = text.bytes;
  token->length = text.length;
  return status;
}

static deltaic_status added_load(deltaic_tokenizer *t, const json_t *value, struct json_reader *r) {
  bool special = json_bool(r, value, "special", false);
  bool normalized = json_bool(r, value, "normalized", !special);
  struct added_tokens *added = normalized ? &t->normalized : &t->raw;
  struct added_token token = {.id = (int32_t)json_integer_value(json_object_get(value, "id")),
                              .single_word = json_bool(r, value, "single_word", false),
                              .left = json_bool(r, value, "lstrip", false),
                              .right = json_bool(r, value, "rstrip", false)};
  if (r->status) return r->status;
  deltaic_status status = added_text(t, json_string_value(json_object_get(value, "content")), normalized, &token);
  if (!status && token.length > 0)
    added->items[added->count++] = token;
  else
    free(token.text); // normalized to nothing: never found
  return status;
}

static deltaic_status added_load_all(deltaic_tokenizer *t, const json_t *values, struct json_reader *r) {
  size_t count = json_array_size(values), index;
  t->raw.items = calloc(count + 1, sizeof *t->raw.items);
  t->normalized.items = calloc(count + 1, sizeof *t->normalized.items);
  if (!t->raw.items || !t->normalized.items)
    return fail_memory("the added tokens", (count + 1) * 2 * sizeof *t->raw.items);
  json_t *value;
  json_array_foreach(values, index, value) {
    deltaic_status status = added_load(t, value, r);
    if (status) return status;
  }
  added_sort(&t->raw);
  added_sort(&t->normalized);
  return DELTAIC_OK;
}

// The first of [begin, end) whose byte at `depth` is not below `byte`. All are longer than depth.
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

// The longest added token that the text begins with, or NULL. Narrows the range of tokens byte by byte.
static const struct added_token *added_match(const struct added_tokens *added, const char *text, size_t length) {
  const struct added_token *best = NULL;
  unsigned char lead = (unsigned char)text[0];
  size_t begin = added->begin[lead], end = added->begin[lead + 1];
  for (size_t depth = 1; begin < end; depth++) {
    for (; begin < end && added->items[begin].length == depth; begin++) best = &added->items[begin];
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

// Cuts [begin, begin + length) of pieces->text at its added tokens.
static deltaic_status added_split(const struct added_tokens *added, size_t begin, size_t length, bool first,
                                  struct pieces *pieces) {
  const char *text = pieces->text.bytes + begin;
  size_t done = 0; // what lies before is in pieces
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

// ---------------------------------------------------------------- post-processor

static deltaic_status template_append(deltaic_tokenizer *t, json_int_t id, struct json_reader *r) {
  if (t->template_count == MAX_TEMPLATE)
    return fail(DELTAIC_UNSUPPORTED, "%s: a post_processor of more than %d tokens is not supported", r->file,
                MAX_TEMPLATE);
  t->template[t->template_count++] = (int32_t)id;
  return DELTAIC_OK;
}

static deltaic_status template_special(deltaic_tokenizer *t, const json_t *value, const json_t *piece,
                                       struct json_reader *r) {
  const char *name = json_text(r, piece, "id", NULL);
  if (r->status) return r->status;
  if (!name) return fail(DELTAIC_BAD_FILE, "%s: a special token of the post_processor has no \"id\"", r->file);
  const json_t *ids = json_object_get(json_object_get(json_object_get(value, "special_tokens"), name), "ids");
  if (!json_is_array(ids))
    return fail(DELTAIC_BAD_FILE, "%s: the post_processor names \"%s\", but has no ids for it", r->file, name);
  size_t index;
  json_t *id;
  json_array_foreach(ids, index, id) {
    json_int_t number = json_is_integer(id) ? json_integer_value(id) : -1;
    if (number < 0 || number > INT32_MAX || !tokenizer_token(t, (int32_t)number))
      return fail(DELTAIC_BAD_FILE, "%s: the post_processor's \"%s\" has an id that no token has", r->file, name);
    deltaic_status status = template_append(t, number, r);
    if (status) return status;
  }
  return DELTAIC_OK;
}

static deltaic_status template_load(deltaic_tokenizer *t, const json_t *value, struct json_reader *r) {
  const json_t *single = json_object_get(value, "single");
  if (!json_is_array(single))
    return fail(DELTAIC_BAD_FILE, "%s: the post_processor's \"single\" is missing or not an array", r->file);
  if (t->template_count > 0)
    return fail(DELTAIC_UNSUPPORTED, "%s: two TemplateProcessing post_processors are not supported", r->file);
  size_t index;
  json_t *piece;
  deltaic_status status = DELTAIC_OK;
  json_array_foreach(single, index, piece) {
    const json_t *special = json_object_get(piece, "SpecialToken");
    const char *sequence = json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id"));
    if (special)
      status = template_special(t, value, special, r);
    else if (sequence && !strcmp(sequence, "A"))
      status = template_append(t, TEXT_ITSELF, r);
    else
      status = fail(DELTAIC_BAD_FILE, "%s: piece %zu of the post_processor is neither a token nor sequence A", r->file,
                    index);
    if (status) return status;
  }
  return t->template_count ? DELTAIC_OK
                           : fail(DELTAIC_BAD_FILE, "%s: the post_processor's \"single\" is empty", r->file);
}

static deltaic_status postprocessor_load(deltaic_tokenizer *t, const json_t *value, struct json_reader *r) {
  if (!value || json_is_null(value)) return DELTAIC_OK;
  const char *type = json_string_value(json_object_get(value, "type"));
  if (!type) return fail(DELTAIC_BAD_FILE, "%s: the post_processor has no \"type\"", r->file);
  if (!strcmp(type, "ByteLevel")) return DELTAIC_OK; // concerns offsets only
  if (!strcmp(type, "TemplateProcessing")) return template_load(t, value, r);
  if (strcmp(type, "Sequence") != 0)
    return fail(DELTAIC_UNSUPPORTED, "%s: post_processor \"%s\" is not supported", r->file, type);
  const json_t *parts = json_object_get(value, "processors");
  if (!json_is_array(parts)) return fail(DELTAIC_BAD_FILE, "%s: a Sequence has no \"processors\"", r->file);
  size_t index;
  json_t *part;
  deltaic_status status = DELTAIC_OK;
  json_array_foreach(parts, index, part) {
    if (!status) status = postprocessor_load(t, part, r);
  }
  return status;
}

// ---------------------------------------------------------------- loading

static deltaic_status check_file(const json_t *root, const json_t *model, struct json_reader *r) {
  if (!json_is_object(root)) return fail(DELTAIC_BAD_FILE, "%s: not a JSON object", r->file);
  const char *version = json_text(r, root, "version", "1.0");
  if (r->status) return r->status;
  if (strcmp(version, "1.0") != 0)
    return fail(DELTAIC_UNSUPPORTED, "%s: version %s is not supported", r->file, version);
  if (!json_is_object(model)) return fail(DELTAIC_BAD_FILE, "%s: \"model\" is missing or not an object", r->file);
  const char *type = json_text(r, model, "type", "BPE"); // older files leave it out
  if (r->status) return r->status;
  if (strcmp(type, "BPE") != 0)
    return fail(DELTAIC_UNSUPPORTED, "%s: model type \"%s\" is not supported", r->file, type);
  if (!json_is_object(json_object_get(model, "vocab")))
    return fail(DELTAIC_BAD_FILE, "%s: the model's \"vocab\" is missing or not an object", r->file);
  if (json_present(root, "added_tokens") && !json_is_array(json_object_get(root, "added_tokens")))
    return fail(DELTAIC_BAD_FILE, "%s: \"added_tokens\" is not an array", r->file);
  return DELTAIC_OK;
}

static deltaic_status tokenizer_load(deltaic_tokenizer *t, const json_t *root, struct json_reader *r) {
  const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
  deltaic_status status = check_file(root, model, r);
  if (!status) status = normalizers_load(&t->normalizers, json_object_get(root, "normalizer"), r);
  if (!status) status = pretokenizers_load(&t->pretokenizers, json_object_get(root, "pre_tokenizer"), r);
  if (!status) status = decoders_load(&t->decoders, json_object_get(root, "decoder"), r);
  if (!status) status = vocabulary_load(&t->vocabulary, json_object_get(model, "vocab"), added, r);
  if (!status) status = bpe_load(&t->bpe, &t->vocabulary, model, r);
  if (!status) status = added_load_all(t, added, r);
  if (!status) status = postprocessor_load(t, json_object_get(root, "post_processor"), r);
  return status ? status : r->status;
}

deltaic_status tokenizer_parse(const char *json, size_t bytes, const char *name, deltaic_tokenizer **out) {
  struct json_reader r = {.file = name};
  json_t *root = NULL;
  deltaic_tokenizer *t = calloc(1, sizeof *t);
  deltaic_status status = t ? DELTAIC_OK : fail_memory("a tokenizer", sizeof *t);
  if (!status && bytes == 0) status = fail(DELTAIC_BAD_FILE, "%s: the file is empty", name);
  if (!status) status = json_parse(name, json, bytes, &root);
  if (!status) status = tokenizer_load(t, root, &r);
  json_decref(root);
  if (status)
    deltaic_tokenizer_close(t);
  else
    *out = t;
  return status;
}

static deltaic_status tokenizer_read(const char *path, deltaic_tokenizer **out) {
  struct file_view view;
  deltaic_status status = file_map(path, &view);
  if (status) return status;
  status = tokenizer_parse(view.data, (size_t)view.bytes, path, out);
  file_unmap(&view);
  return status;
}

deltaic_status deltaic_tokenizer_open(const char *path, deltaic_tokenizer **out) {
  if (!path || !out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tokenizer_open: a pointer is NULL");
  struct stat info;
  if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return tokenizer_read(path, out);
  char *file = path_join(path, "tokenizer.json");
  if (!file) return DELTAIC_OUT_OF_MEMORY;
  deltaic_status status = tokenizer_read(file, out);
  free(file);
  return status;
}

void deltaic_tokenizer_close(deltaic_tokenizer *t) {
  if (!t) return;
  vocabulary_free(&t->vocabulary);
  bpe_free(&t->bpe);
  added_free(&t->raw);
  added_free(&t->normalized);
  steps_free(&t->normalizers);
  steps_free(&t->pretokenizers);
  decoders_free(&t->decoders);
  free(t);
}

// ---------------------------------------------------------------- looking up

int32_t deltaic_tokenizer_size(const deltaic_tokenizer *t) { return t ? t->vocabulary.size : 0; }

const char *deltaic_tokenizer_kind(const deltaic_tokenizer *t) {
  if (!t) return "";
  if (steps_have(&t->pretokenizers, STEP_BYTE_LEVEL) || decoders_have(&t->decoders, DECODE_BYTE_LEVEL))
    return "byte-level BPE";
  return t->bpe.byte_fallback ? "BPE with byte fallback" : "BPE";
}

int32_t deltaic_tokenizer_find(const deltaic_tokenizer *t, const char *token) {
  return t && token ? vocabulary_find(&t->vocabulary, token, strlen(token)) : -1;
}

const struct token *tokenizer_token(const deltaic_tokenizer *t, int32_t id) {
  return id < t->vocabulary.size && t->vocabulary.tokens[id].text ? &t->vocabulary.tokens[id] : NULL;
}

const struct decode_steps *tokenizer_decoders(const deltaic_tokenizer *t) { return &t->decoders; }

// ---------------------------------------------------------------- encoding

static deltaic_status check_utf8(const char *text, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    int length = utf8_check(text + at, bytes - at);
    if (length <= 0)
      return fail(DELTAIC_INVALID_ARGUMENT, "byte %zu of the text, 0x%02x, is not UTF-8", at + 1,
                  (unsigned)(unsigned char)text[at]);
    at += (size_t)length;
  }
  return DELTAIC_OK;
}

// Normalizes what lies between the added tokens of `raw`, and finds those that are looked for in normalized text.
static deltaic_status normalize_pieces(const deltaic_tokenizer *t, const struct pieces *raw, struct pieces *out) {
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < raw->count && !status; i++) {
    struct piece piece = raw->items[i];
    if (piece.id >= 0) {
      status = pieces_append(out, piece);
      continue;
    }
    size_t begin = out->text.length;
    status = normalize(&t->normalizers, raw->text.bytes + piece.begin, piece.length, &piece.first, &out->text);
    if (!status && out->text.length > begin)
      status = added_split(&t->normalized, begin, out->text.length - begin, piece.first, out);
  }
  return status;
}

deltaic_status tokenizer_split(const deltaic_tokenizer *t, const char *text, size_t bytes, struct pieces *out) {
  struct pieces raw = {0};
  deltaic_status status = check_utf8(text, bytes);
  if (status || bytes == 0) return status;
  text_append(&raw.text, text, bytes);
  status = raw.text.failed ? fail_memory("the text", bytes) : added_split(&t->raw, 0, bytes, true, &raw);
  if (!status) status = normalize_pieces(t, &raw, out);
  pieces_free(&raw);
  return status ? status : pretokenize(&t->pretokenizers, out);
}

static deltaic_status encode_pieces(const deltaic_tokenizer *t, const struct pieces *pieces, struct ids *ids) {
  struct bpe_scratch scratch = {0};
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < pieces->count && !status; i++) {
    const struct piece *piece = &pieces->items[i];
    if (piece->id < 0)
      status = bpe_encode(&t->bpe, &scratch, pieces->text.bytes + piece->begin, piece->length, ids);
    else if (!ids_append(ids, &piece->id, 1))
      status = fail_memory("token ids", ids->count * sizeof *ids->items);
  }
  bpe_scratch_free(&scratch);
  return status;
}

// Puts the text's ids into the post-processor's template.
static deltaic_status apply_template(const deltaic_tokenizer *t, const struct ids *text, bool special,
                                     struct ids *out) {
  bool room = t->template_count > 0 || ids_append(out, text->items, text->count);
  for (size_t i = 0; i < t->template_count && room; i++) {
    if (t->template[i] == TEXT_ITSELF)
      room = ids_append(out, text->items, text->count);
    else if (special)
      room = ids_append(out, &t->template[i], 1);
  }
  return room ? DELTAIC_OK : fail_memory("token ids", text->count * sizeof *text->items);
}

deltaic_status deltaic_tokenizer_encode(const deltaic_tokenizer *t, const char *text, size_t bytes, bool special,
                                        int32_t *ids, size_t capacity, size_t *count) {
  if (!t || (!text && bytes) || (!ids && capacity))
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tokenizer_encode: a pointer is NULL");
  struct pieces pieces = {0};
  struct ids words = {0}, all = {0};
  deltaic_status status = tokenizer_split(t, text, bytes, &pieces);
  if (!status) status = encode_pieces(t, &pieces, &words);
  if (!status) status = apply_template(t, &words, special, &all);
  if (!status && count) *count = all.count;
  if (!status && ids && all.count > capacity)
    status = fail(DELTAIC_BUFFER_TOO_SMALL, "the text has %zu tokens, the buffer room for %zu", all.count, capacity);
  if (!status && ids && all.count) memcpy(ids, all.items, all.count * sizeof *ids);
  pieces_free(&pieces);
  free(words.items);
  free(all.items);
  return status;
}
