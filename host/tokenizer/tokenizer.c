// tokenizer: loads HuggingFace's tokenizer.json, converts text to ids and holds the public functions. Encoding finds
// added tokens in the raw text, normalizes the text between them, finds further added tokens in the result, splits the
// rest into words (pretokenize.c) and merges each word (bpe.c). decoder.c converts ids to text.
#include "tokenizer.h"

#include "added_tokens.h"
#include "chat_parts.h"
#include "file.h"
#include "gguf.h"
#include "gguf_tokenizer.h"

// The limit on the ids that a post-processor may add. The text itself counts as one.
enum { MAX_TEMPLATE = 256, TEXT_ITSELF = -1 };

struct deltaic_tokenizer {
  struct vocabulary vocabulary;
  struct bpe bpe;
  struct added_tokens raw, normalized; // tokens that match the raw text, and the normalized text
  struct steps normalizers, pretokenizers, decoders;
  int32_t template[MAX_TEMPLATE]; // ids, and TEXT_ITSELF in place of the text
  size_t template_count;
};

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
  if (!strcmp(type, "ByteLevel")) return DELTAIC_OK; // affects only offsets
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
  const char *type = json_text(r, model, "type", "BPE"); // older files omit the type
  if (r->status) return r->status;
  if (strcmp(type, "BPE") != 0)
    return fail(DELTAIC_UNSUPPORTED, "%s: model type \"%s\" is not supported", r->file, type);
  if (json_present(root, "added_tokens") && !json_is_array(json_object_get(root, "added_tokens")))
    return fail(DELTAIC_BAD_FILE, "%s: \"added_tokens\" is not an array", r->file);
  return DELTAIC_OK;
}

// The tokens and merges of a tokenizer.json.
static deltaic_status read_lists(struct tokenizer_parts *parts, struct json_reader *r) {
  const json_t *model = json_object_get(parts->root, "model"), *vocab = json_object_get(model, "vocab");
  deltaic_status status = check_file(parts->root, model, r);
  if (status) return status;
  if (!json_is_object(vocab))
    return fail(DELTAIC_BAD_FILE, "%s: the model's \"vocab\" is missing or not an object", r->file);
  status = vocabulary_entries(vocab, json_object_get(parts->root, "added_tokens"), r, &parts->entries, &parts->count);
  return status ? status : bpe_merges(model, r, &parts->merges, &parts->merge_count);
}

static deltaic_status tokenizer_load(deltaic_tokenizer *t, const struct tokenizer_parts *p, struct json_reader *r) {
  const json_t *root = p->root, *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
  deltaic_status status = normalizers_load(&t->normalizers, json_object_get(root, "normalizer"), r);
  if (!status) status = pretokenizers_load(&t->pretokenizers, json_object_get(root, "pre_tokenizer"), r);
  if (!status) status = decoders_load(&t->decoders, json_object_get(root, "decoder"), r);
  if (!status) status = vocabulary_load(&t->vocabulary, p->entries, p->count, r->file);
  if (!status) status = bpe_load(&t->bpe, &t->vocabulary, model, p->merges, p->merge_count, r);
  if (!status) status = added_load(&t->raw, added, NULL, r);
  if (!status) status = added_load(&t->normalized, added, &t->normalizers, r);
  if (!status) status = postprocessor_load(t, json_object_get(root, "post_processor"), r);
  return status ? status : r->status;
}

static deltaic_status tokenizer_create(const struct tokenizer_parts *parts, const char *name, deltaic_tokenizer **out) {
  struct json_reader r = {.file = name};
  deltaic_tokenizer *t = calloc(1, sizeof *t);
  deltaic_status status = t ? tokenizer_load(t, parts, &r) : fail_memory("a tokenizer", sizeof *t);
  if (status)
    deltaic_tokenizer_close(t);
  else
    *out = t;
  return status;
}

deltaic_status tokenizer_parse(const char *json, size_t bytes, const char *name, deltaic_tokenizer **out) {
  struct tokenizer_parts parts = {0};
  struct json_reader r = {.file = name};
  if (bytes == 0) return fail(DELTAIC_BAD_FILE, "%s: the file is empty", name);
  deltaic_status status = json_parse(name, json, bytes, &parts.root);
  if (!status) status = read_lists(&parts, &r);
  if (!status) status = tokenizer_create(&parts, name, out);
  tokenizer_parts_free(&parts);
  return status;
}

deltaic_status tokenizer_of_gguf(const struct gguf *gguf, struct file_view view, const char *name,
                                 deltaic_tokenizer **out) {
  struct tokenizer_parts parts;
  const json_t *whole = json_object_get(gguf->keys, "tokenizer.huggingface.json"); // a tokenizer.json
  if (json_is_string(whole)) return tokenizer_parse(json_string_value(whole), json_string_length(whole), name, out);
  deltaic_status status = gguf_tokenizer_parts(name, gguf, view, &parts);
  if (!status) status = tokenizer_create(&parts, name, out);
  tokenizer_parts_free(&parts);
  return status;
}

static deltaic_status tokenizer_read_gguf(const deltaic_source *source, const char *path, deltaic_tokenizer **out) {
  struct input in;
  struct gguf gguf;
  deltaic_status status = gguf_open_keys(source, path, &in, &gguf);
  if (!status) status = tokenizer_of_gguf(&gguf, in.view, path, out);
  gguf_free(&gguf);
  input_close(&in);
  return status;
}

static deltaic_status tokenizer_read(const deltaic_source *source, const char *path, deltaic_tokenizer **out) {
  struct input in;
  if (source ? input_is_gguf(path) : gguf_is_file(path)) return tokenizer_read_gguf(source, path, out);
  deltaic_status status = input_open_whole(source, path, &in);
  if (status) return status;
  status = tokenizer_parse(in.view.data, (size_t)in.view.bytes, path, out);
  input_close(&in);
  return status;
}

static deltaic_status tokenizer_read_folder(const deltaic_source *source, const char *path, deltaic_tokenizer **out) {
  char *file = path_join(path, "tokenizer.json");
  if (!file) return DELTAIC_OUT_OF_MEMORY;
  deltaic_status status = tokenizer_read(source, file, out);
  free(file);
  return status;
}

deltaic_status deltaic_tokenizer_open(const char *path, deltaic_tokenizer **out) {
  if (refuse_null("deltaic_tokenizer_open", "path,out", path, out)) return DELTAIC_INVALID_ARGUMENT;
  return platform_is(path, PATH_FOLDER) ? tokenizer_read_folder(NULL, path, out) : tokenizer_read(NULL, path, out);
}

deltaic_status deltaic_tokenizer_open_from(const deltaic_source *source, const char *path, deltaic_tokenizer **out) {
  if (refuse_null("deltaic_tokenizer_open_from", "source,path,out", source, path, out)) return DELTAIC_INVALID_ARGUMENT;
  const size_t length = strlen(path);
  const bool file = input_is_gguf(path) || (length > 5 && !strcmp(path + length - 5, ".json"));
  deltaic_source copy;
  deltaic_status status = input_source(&copy, source, "deltaic_tokenizer_open_from");
  if (status) return status;
  return file ? tokenizer_read(&copy, path, out) : tokenizer_read_folder(&copy, path, out);
}

void deltaic_tokenizer_close(deltaic_tokenizer *t) {
  if (!t) return;
  vocabulary_free(&t->vocabulary);
  bpe_free(&t->bpe);
  added_free(&t->raw);
  added_free(&t->normalized);
  steps_free(&t->normalizers);
  steps_free(&t->pretokenizers);
  steps_free(&t->decoders);
  free(t);
}

// ---------------------------------------------------------------- lookup

int32_t deltaic_tokenizer_size(const deltaic_tokenizer *t) { return t ? t->vocabulary.size : 0; }

const char *deltaic_tokenizer_kind(const deltaic_tokenizer *t) {
  if (!t) return "";
  if (steps_have(&t->pretokenizers, STEP_BYTE_LEVEL) || steps_have(&t->decoders, DECODE_BYTE_LEVEL))
    return "byte-level BPE";
  return t->bpe.byte_fallback ? "BPE with byte fallback" : "BPE";
}

int32_t deltaic_tokenizer_find(const deltaic_tokenizer *t, const char *token) {
  return t && token ? vocabulary_find(&t->vocabulary, token, strlen(token)) : -1;
}

const struct token *tokenizer_token(const deltaic_tokenizer *t, int32_t id) {
  return id < t->vocabulary.size && t->vocabulary.tokens[id].text ? &t->vocabulary.tokens[id] : NULL;
}

const struct steps *tokenizer_decoders(const deltaic_tokenizer *t) { return &t->decoders; }

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

// Normalizes the text between the added tokens of `raw`. match: finds the added tokens that match normalized text.
static deltaic_status normalize_pieces(const deltaic_tokenizer *t, const struct pieces *raw, bool match,
                                       struct pieces *out) {
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < raw->count && !status; i++) {
    struct piece piece = raw->items[i];
    if (piece.id >= 0) {
      status = pieces_append(out, piece);
      continue;
    }
    size_t begin = out->text.length;
    status = normalize(&t->normalizers, raw->text.bytes + piece.begin, piece.length, &piece.first, &out->text);
    if (!status && !match)
      status = pieces_append(out, (struct piece){begin, out->text.length - begin, -1, piece.first});
    else if (!status && out->text.length > begin)
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
  if (!status) status = normalize_pieces(t, &raw, true, out);
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

// Splits a part at the added tokens that it may have.
static deltaic_status split_part(const deltaic_tokenizer *t, const struct chat_part *part, bool first,
                                 struct pieces *out) {
  const size_t begin = out->text.length;
  struct added_tokens plain = t->raw;
  plain.skip_special = part->trust == TRUST_PLAIN;
  deltaic_status status = check_utf8(part->text, part->bytes);
  if (status) return status;
  text_append(&out->text, part->text, part->bytes);
  if (out->text.failed) return fail_memory("the text", part->bytes);
  if (part->trust == TRUST_NONE) return pieces_append(out, (struct piece){begin, part->bytes, -1, first});
  return added_split(&plain, begin, part->bytes, first, out);
}

// Joins neighbouring texts, so that a word may cross parts.
static void join_pieces(struct pieces *pieces) {
  size_t n = 0;
  for (size_t i = 0; i < pieces->count; i++) {
    struct piece *last = n ? &pieces->items[n - 1] : NULL, piece = pieces->items[i];
    if (last && last->id < 0 && piece.id < 0 && last->begin + last->length == piece.begin)
      last->length += piece.length;
    else
      pieces->items[n++] = piece;
  }
  pieces->count = n;
}

deltaic_status tokenizer_encode_parts(const deltaic_tokenizer *t, const struct chat_parts *parts, bool first,
                                      struct ids *out) {
  struct pieces raw = {0}, pieces = {0};
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < parts->count && !status; i++)
    status = split_part(t, &parts->items[i], first && !raw.text.length, &raw);
  join_pieces(&raw);
  if (!status) status = normalize_pieces(t, &raw, false, &pieces);
  if (!status) status = pretokenize(&t->pretokenizers, &pieces);
  if (!status) status = encode_pieces(t, &pieces, out);
  pieces_free(&raw);
  pieces_free(&pieces);
  return status;
}

// Inserts the text's ids into the post-processor's template.
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
  if (refuse_null("deltaic_tokenizer_encode", "tokenizer,text,ids", t, FILLED(text, bytes), FILLED(ids, capacity)))
    return DELTAIC_INVALID_ARGUMENT;
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
