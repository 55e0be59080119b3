// gguf: reads a file that consists of "GGUF", a version, the numbers of tensors and of keys, the keys (name, type,
// value), the tensors (name, sizes, type, offset), and the data, aligned. All numbers are little-endian. Gaps between
// tensors are accepted.
#include "gguf.h"

#include "list.h"
#include "platform.h"
#include "text.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF data is little-endian and is used as it is");
enum { VERSION = 3, NAME_BYTES = 256, ALIGN = 32, ALIGN_MOST = 1 << 16 };
// Of all arrays: eight times the largest vocabulary's tokens, types, scores and merges.
enum { ELEMENTS_MOST = 1 << 25 };

// ---------------------------------------------------------------- bytes

// Reads in order. After the first failure the status stays, and all numbers read are 0.
struct cursor {
  const char *file;
  struct file_view view;
  uint64_t at;
  const char *what; // is being read, for messages
  uint64_t elements;
  struct gguf *lists; // gets the lists of a tokenizer
  bool cut;           // the status is due to the end of the view
  deltaic_status status;
};

static uint64_t left(const struct cursor *c) { return c->view.bytes - c->at; }

static const char *take(struct cursor *c, uint64_t bytes) {
  if (c->status) return NULL;
  if (bytes > left(c)) {
    c->status = fail(DELTAIC_BAD_FILE, "%s: ends inside %.200s: the file is cut short or damaged", c->file, c->what);
    c->cut = true;
    return NULL;
  }
  const char *from = c->view.data + c->at;
  c->at += bytes;
  return from;
}

static uint64_t number(struct cursor *c, uint32_t bytes) {
  uint64_t value = 0;
  const char *from = take(c, bytes);
  if (from) memcpy(&value, from, bytes);
  return value;
}

// A name of a key or a tensor: text without NUL. It fits into `name`.
static void read_name(struct cursor *c, const char *what, char name[NAME_BYTES]) {
  const uint64_t bytes = number(c, 8);
  name[0] = 0;
  if (!c->status && bytes >= NAME_BYTES)
    c->status = fail(DELTAIC_BAD_FILE, "%s: the name of %s has %llu bytes, more than %d", c->file, what,
                     (unsigned long long)bytes, NAME_BYTES - 1);
  const char *from = take(c, bytes);
  if (!from) return;
  if (!bytes || memchr(from, 0, bytes)) {
    c->status = fail(DELTAIC_BAD_FILE, "%s: the name of %s is %s", c->file, what, bytes ? "not text" : "empty");
    return;
  }
  memcpy(name, from, bytes);
  name[bytes] = 0;
}

// ---------------------------------------------------------------- keys

enum value_type { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64, VALUE_TYPES };
static const uint32_t value_bytes[VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8}; // least bytes of one

static json_t *read_text(struct cursor *c) {
  const uint64_t bytes = number(c, 8);
  const char *from = take(c, bytes);
  if (!from) return NULL;
  for (uint64_t at = 0; at < bytes;) {
    const int length = from[at] ? utf8_check(from + at, bytes - at) : 0; // keys with NUL are not text
    if (length <= 0) {
      c->status = fail(DELTAIC_BAD_FILE, "%s: %s has text that is not UTF-8", c->file, c->what);
      return NULL;
    }
    at += (uint64_t)length;
  }
  return json_stringn_nocheck(from, bytes);
}

static json_t *real_or_null(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static int64_t sign_extend(uint64_t value, uint32_t bytes) {
  const int shift = 64 - 8 * (int)bytes;
  return (int64_t)(value << shift) >> shift;
}

static json_t *read_scalar(struct cursor *c, enum value_type type) {
  if (type == STRING) return read_text(c);
  const uint32_t bytes = value_bytes[type];
  const uint64_t value = number(c, bytes);
  if (c->status) return NULL;
  float narrow;
  double wide;
  switch (type) {
  case F32: memcpy(&narrow, &value, 4); return real_or_null((double)narrow);
  case F64: memcpy(&wide, &value, 8); return real_or_null(wide);
  case BOOL: return json_boolean(value != 0);
  case I8:
  case I16:
  case I32:
  case I64: return json_integer(sign_extend(value, bytes));
  default: break;
  }
  if (value <= INT64_MAX) return json_integer((json_int_t)value);
  c->status = fail(DELTAIC_BAD_FILE, "%s: %s is %llu, which is too large", c->file, c->what, (unsigned long long)value);
  return NULL;
}

// The same name, if it is that of a list of a tokenizer; or NULL.
static const char *list_named(const char *name) {
  static const char *const names[GGUF_LISTS] = {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                                                "tokenizer.ggml.scores", "tokenizer.ggml.merges"};
  for (int i = 0; i < GGUF_LISTS; i++)
    if (!strcmp(name, names[i])) return names[i];
  return NULL;
}

// Checks that the elements are in the view, and stands for them.
static json_t *pass_over(struct cursor *c, const char *name, uint32_t type, uint64_t count) {
  c->lists->lists[c->lists->list_count++] = (struct gguf_list){.name = name, .type = type, .at = c->at, .left = count};
  for (uint64_t i = 0; type == STRING && i < count && !c->status; i++) take(c, number(c, 8));
  if (type != STRING) take(c, count * value_bytes[type]);
  return c->status ? NULL : json_null();
}

struct gguf_list gguf_list_of(const struct gguf *gguf, const char *name) {
  const json_t *json = json_object_get(gguf->keys, name);
  for (int i = 0; i < gguf->list_count; i++)
    if (!strcmp(gguf->lists[i].name, name)) return gguf->lists[i];
  return (struct gguf_list){.name = json_is_array(json) ? name : NULL, .json = json, .left = json_array_size(json)};
}

bool gguf_next(struct gguf_list *list, struct file_view view, struct gguf_element *out) {
  struct cursor c = {.view = view, .at = list->at};
  if (!list->left) return false;
  list->left--;
  *out = (struct gguf_element){0};
  if (list->json) {
    const json_t *value = json_array_get(list->json, c.at++);
    *out = (struct gguf_element){json_integer_value(value), json_string_value(value), json_string_length(value)};
  } else if (list->type == STRING) {
    out->bytes = number(&c, 8);
    out->text = take(&c, out->bytes);
  } else {
    const uint32_t bytes = value_bytes[list->type];
    out->number = sign_extend(number(&c, bytes), bytes);
  }
  list->at = c.at;
  return true;
}

static json_t *read_array(struct cursor *c, const char *list_name) {
  const uint64_t type = number(c, 4), count = number(c, 8);
  if (c->status) return NULL;
  if (type >= VALUE_TYPES || type == ARRAY) {
    c->status = fail(DELTAIC_BAD_FILE, "%s: %s is an array of type %llu, which is not known", c->file, c->what,
                     (unsigned long long)type);
    return NULL;
  }
  if (count > left(c) / value_bytes[type] || count > ELEMENTS_MOST - c->elements) {
    c->status =
        fail(DELTAIC_BAD_FILE, "%s: %s claims %llu elements, more than %s", c->file, c->what, (unsigned long long)count,
             count > left(c) / value_bytes[type] ? "the file has bytes" : "any vocabulary");
    c->cut = count <= ELEMENTS_MOST - c->elements;
    return NULL;
  }
  c->elements += count;
  if (list_name) return pass_over(c, list_name, (uint32_t)type, count);
  json_t *list = json_array();
  for (uint64_t i = 0; list && i < count; i++) {
    if (!json_array_append_new(list, read_scalar(c, (enum value_type)type))) continue;
    json_decref(list);
    return NULL;
  }
  return list;
}

static void read_key(struct cursor *c, json_t *keys) {
  char name[NAME_BYTES];
  c->what = "the keys";
  read_name(c, "a key", name);
  if (c->status) return;
  c->what = name;
  const uint64_t type = number(c, 4);
  if (!c->status && type >= VALUE_TYPES)
    c->status =
        fail(DELTAIC_BAD_FILE, "%s: %s has type %llu, which is not known", c->file, name, (unsigned long long)type);
  if (!c->status && json_object_get(keys, name))
    c->status = fail(DELTAIC_BAD_FILE, "%s: %s is given twice", c->file, name);
  if (c->status) return;
  json_t *value = type == ARRAY ? read_array(c, list_named(name)) : read_scalar(c, (enum value_type)type);
  if (!value && !c->status) c->status = fail_memory("a GGUF file's keys", 0);
  if (!c->status && json_object_set_new_nocheck(keys, name, json_incref(value)))
    c->status = fail_memory("a GGUF file's keys", 0);
  json_decref(value);
}

bool gguf_is(struct file_view view) { return view.bytes >= 4 && !memcmp(view.data, "GGUF", 4); }

bool gguf_is_file(const char *path) {
  char begin[4] = {0};
  FILE *f = platform_open(path, "rb");
  const bool read = f && fread(begin, 1, sizeof begin, f) == sizeof begin;
  if (f) fclose(f);
  return read && gguf_is((struct file_view){begin, sizeof begin});
}

deltaic_status gguf_read_keys(const char *file, struct file_view view, struct gguf *out) {
  struct cursor c = {.file = file, .view = view, .what = "the header", .lists = out};
  memset(out, 0, sizeof *out);
  if (!gguf_is(view)) return fail(DELTAIC_BAD_FILE, "%s: is not a GGUF file", file);
  take(&c, 4);
  const uint64_t version = number(&c, 4);
  out->tensor_count = number(&c, 8);
  const uint64_t count = number(&c, 8);
  out->cut = c.cut;
  if (c.status) return c.status;
  if (version == (uint64_t)VERSION << 24) return fail(DELTAIC_UNSUPPORTED, "%s: is a big-endian GGUF file", file);
  if (version != VERSION)
    return fail(DELTAIC_UNSUPPORTED, "%s: has GGUF version %llu, expected %d", file, (unsigned long long)version,
                VERSION);
  out->keys = json_object();
  if (!out->keys) return fail_memory("a GGUF file's keys", 0);
  for (uint64_t i = 0; i < count && !c.status; i++) read_key(&c, out->keys);
  out->at = c.at;
  out->cut = c.cut;
  return c.status;
}

deltaic_status gguf_visit_keys(const char *file, struct file_view view, gguf_key_visitor each, void *user) {
  struct gguf lists = {0};
  struct cursor c = {.file = file, .view = view, .what = "the header", .lists = &lists};
  take(&c, 16);
  const uint64_t count = number(&c, 8);
  json_t *one = json_object();
  if (!one) return fail_memory("a GGUF file's keys", 0);
  for (uint64_t i = 0; i < count && !c.status; i++, lists.list_count = 0) {
    const uint64_t begin = c.at;
    read_key(&c, one);
    if (!c.status) each(user, json_object_iter_key(json_object_iter(one)), view.data + begin, c.at - begin);
    json_object_clear(one);
  }
  json_decref(one);
  return c.status;
}

// ---------------------------------------------------------------- tensors

// Names are untrusted. They are cut so that the message still has room for the reason.
#define TENSOR_FAIL(c, t, text, ...)                                                                                   \
  ((c)->status = fail(DELTAIC_BAD_FILE, "%s: tensor %.200s " text, (c)->file, (t)->name, __VA_ARGS__))

// Treats zeros as ones, so that later products of some of the sizes cannot overflow either.
static void read_sizes(struct cursor *c, struct gguf_tensor *t, uint64_t *elements) {
  const uint64_t rank = number(c, 4);
  bool empty = false;
  *elements = 1;
  if (c->status) return;
  if (rank < 1 || rank > GGUF_RANK) {
    TENSOR_FAIL(c, t, "has %llu dimensions, expected from 1 to %d", (unsigned long long)rank, GGUF_RANK);
    return;
  }
  t->rank = (int)rank;
  for (int i = t->rank; i-- > 0;) {
    const uint64_t size = t->shape[i] = number(c, 8);
    empty |= size == 0;
    if (!c->status && !size_mul(*elements, size ? size : 1, elements))
      TENSOR_FAIL(c, t, "has more elements than %s", "can be counted");
  }
  if (empty) *elements = 0;
}

// Returns the tensor's offset in the data.
static uint64_t read_tensor(struct cursor *c, struct gguf *out) {
  char name[NAME_BYTES];
  uint64_t elements;
  c->what = "the list of tensors";
  read_name(c, "a tensor", name);
  if (c->status) return 0;
  if (json_object_get(out->names, name)) {
    c->status = fail(DELTAIC_BAD_FILE, "%s: tensor %s is listed twice", c->file, name);
    return 0;
  }
  struct gguf_tensor *t = &out->tensors[out->count];
  *t = (struct gguf_tensor){.name = name};
  read_sizes(c, t, &elements);
  const uint64_t type = number(c, 4), offset = number(c, 8);
  if (c->status) return 0;
  t->type = gguf_type((uint32_t)type);
  if (!t->type)
    TENSOR_FAIL(c, t, "has type %llu, which is not known", (unsigned long long)type);
  else if (t->shape[t->rank - 1] % t->type->values)
    TENSOR_FAIL(c, t, "has rows of %llu elements, not whole blocks of %s", (unsigned long long)t->shape[t->rank - 1],
                t->type->name);
  else if (!size_mul(elements / t->type->values, t->type->bytes, &t->bytes))
    TENSOR_FAIL(c, t, "has more bytes than %s", "can be counted");
  else if (json_object_set_new_nocheck(out->names, name, json_null()))
    c->status = fail_memory("the names of tensors", 0);
  else
    t->name = json_object_iter_key(json_object_iter_at(out->names, name));
  return offset;
}

// begin, room: where the data begins, and its bytes.
static void place_tensor(struct cursor *c, struct gguf_tensor *t, uint64_t offset, uint64_t begin, uint64_t room,
                         uint64_t align) {
  if (c->status) return;
  if (offset % align)
    TENSOR_FAIL(c, t, "begins at %llu, which is not a multiple of the alignment %llu", (unsigned long long)offset,
                (unsigned long long)align);
  else if (offset > room || t->bytes > room - offset)
    TENSOR_FAIL(c, t, "has %llu bytes from byte %llu of %llu on: the file is cut short or damaged",
                (unsigned long long)t->bytes, (unsigned long long)offset, (unsigned long long)room);
  else
    t->at = room ? begin + offset : 0;
}

static uint64_t alignment(struct cursor *c, const json_t *keys) {
  struct json_reader r = {.file = c->file};
  const int64_t align = json_int(&r, keys, "general.alignment", ALIGN, 1, ALIGN_MOST);
  c->status = r.status;
  if (!r.status && align & (align - 1))
    c->status =
        fail(DELTAIC_BAD_FILE, "%s: general.alignment is %lld and must be a power of two", c->file, (long long)align);
  return (uint64_t)align;
}

deltaic_status gguf_read_tensors(const char *file, struct file_view view, uint64_t bytes, struct gguf *out) {
  struct cursor c = {.file = file, .view = view, .at = out->at};
  uint64_t *offsets = NULL;
  size_t room = 0;
  assert(out->keys && !out->names);
  const uint64_t align = alignment(&c, out->keys);
  out->names = json_object();
  if (!out->names) c.status = fail_memory("the names of tensors", 0);
  while (out->count < out->tensor_count && !c.status) {
    c.status = list_room(&out->tensors, out->count, &out->capacity, sizeof *out->tensors, "the list of tensors");
    if (!c.status) c.status = list_room(&offsets, out->count, &room, sizeof *offsets, "the list of tensors");
    if (c.status) break;
    offsets[out->count] = read_tensor(&c, out);
    if (!c.status) out->count++;
  }
  const uint64_t begin = (c.at + align - 1) / align * align, room_after = bytes < begin ? 0 : bytes - begin;
  for (size_t i = 0; i < out->count; i++) place_tensor(&c, &out->tensors[i], offsets[i], begin, room_after, align);
  free(offsets);
  out->cut = c.cut;
  return c.status;
}

deltaic_status gguf_read(struct input *in, bool tensors, struct gguf *out) {
  enum { FIRST = 1 << 16, MOST = 1 << 28 };
  *out = (struct gguf){0};
  deltaic_status status = input_hold(in, FIRST);
  while (!status) {
    const struct file_view held = {in->view.data, in->held};
    status = gguf_read_keys(in->name, held, out);
    if (!status && tensors) status = gguf_read_tensors(in->name, held, in->view.bytes, out);
    if (!status || !out->cut || in->held == in->view.bytes) return status;
    if (in->held >= MOST)
      return fail(DELTAIC_BAD_FILE, "%s: its keys and its list of tensors take more than %d MiB", in->name, MOST >> 20);
    gguf_free(out);
    status = input_hold(in, 2 * in->held);
  }
  return status;
}

void gguf_free(struct gguf *gguf) {
  json_decref(gguf->keys);
  json_decref(gguf->names);
  free(gguf->tensors);
  *gguf = (struct gguf){0};
}

// The keys of a model are in the first of its parts.
static deltaic_status check_first(const char *path, const json_t *keys) {
  struct json_reader r = {.file = path};
  const int64_t part = json_int(&r, keys, "split.no", 0, 0, INT32_MAX);
  if (r.status || !part) return r.status;
  return fail(DELTAIC_BAD_FILE, "%s: is part %lld of a model; give the first", path, (long long)part + 1);
}

deltaic_status gguf_open_keys(const deltaic_source *source, const char *path, struct input *in, struct gguf *out) {
  *out = (struct gguf){0};
  *in = (struct input){0};
  deltaic_status status = input_open(source, path, in);
  if (!status) status = gguf_read(in, false, out);
  return status ? status : check_first(path, out->keys);
}
