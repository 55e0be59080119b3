// gguf.h: reads a GGUF file (version 3): its keys as a JSON object, and its tensors as views of the file. The file is
// untrusted: every count, offset, length and product is checked before use.
#ifndef GGUF_H
#define GGUF_H
#include "input.h"
#include "json.h"

enum { GGUF_RANK = 4 };

// A storage type of the format. Rows consist of whole blocks.
struct gguf_type {
  uint32_t number;
  const char *name;
  uint32_t values, bytes; // of one block
};
const struct gguf_type *gguf_type(uint32_t number);        // NULL: unknown
const struct gguf_type *gguf_type_named(const char *name); // the same, in capitals or not

struct gguf_tensor {
  const char *name;
  const struct gguf_type *type;
  int rank;
  uint64_t shape[GGUF_RANK]; // outermost first; the file has the contiguous dimension first
  uint64_t at, bytes;        // where it is in the file
};

// A list of a tokenizer, as it is in the file.
struct gguf_list {
  const char *name;   // of the key; NULL: there is no such list
  const json_t *json; // the list itself, if it is among the keys
  uint32_t type;      // of the elements
  uint64_t at;        // where the next element is: in the file, or in `json`
  uint64_t left;      // elements from there on
};
struct gguf_element {
  int64_t number;   // or
  const char *text; // NULL: it is a number. It may not be UTF-8
  uint64_t bytes;
};

enum { GGUF_LISTS = 4 };
struct gguf {
  // Names and values. An integer is a JSON integer, an array a JSON array; a number that is not finite is null.
  json_t *keys;
  // The longest lists are here, and their keys are null: the file's tokens, their types, scores and merges. JSON would
  // take a tenth of a second for each of them.
  struct gguf_list lists[GGUF_LISTS];
  int list_count;
  json_t *names; // owns the tensors' names
  struct gguf_tensor *tensors;
  size_t count, capacity;
  uint64_t tensor_count, at; // as the file claims; where the list of tensors begins
  bool cut;                  // the status is due to the end of the view
};

bool gguf_is(struct file_view view); // whether a file begins as one
bool gguf_is_file(const char *path); // the same; false if the file cannot be read
// Reads the keys. Messages name `file`. Call gguf_free() even after a failure; *out is zeroed first.
deltaic_status gguf_read_keys(const char *file, struct file_view view, struct gguf *out);
// Reads the list of tensors, after the keys. bytes: of the whole file.
deltaic_status gguf_read_tensors(const char *file, struct file_view view, uint64_t bytes, struct gguf *out);
// Both, or the keys alone, of a file of which they hold as much as they need.
deltaic_status gguf_read(struct input *in, bool tensors, struct gguf *out);
// The list of this name.
struct gguf_list gguf_list_of(const struct gguf *gguf, const char *name);
// Its next element. view: of the file. False: there is none.
bool gguf_next(struct gguf_list *list, struct file_view view, struct gguf_element *out);
void gguf_free(struct gguf *gguf); // accepts a zeroed struct

// Calls `each` for every key of a file whose keys gguf_read_keys() has accepted. bytes: name, type and value, as they
// are in the file.
typedef void (*gguf_key_visitor)(void *user, const char *name, const char *bytes, uint64_t count);
deltaic_status gguf_visit_keys(const char *file, struct file_view view, gguf_key_visitor each, void *user);

// Opens the file at `path`, which must not be a later part of a model, and reads its keys. The caller calls gguf_free()
// and input_close(), also after a failure.
deltaic_status gguf_open_keys(const deltaic_source *source, const char *path, struct input *in, struct gguf *out);
#endif
