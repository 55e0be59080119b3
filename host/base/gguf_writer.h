// gguf_writer.h: writes a GGUF file (version 3) in one pass: keys and tensors are declared, then each tensor's bytes
// are appended in order. The file may be larger than memory. A failure leaves an existing file unchanged.
#ifndef GGUF_WRITER_H
#define GGUF_WRITER_H
#include "file.h"
#include "gguf.h"

struct gguf_bytes {
  char *data;
  size_t count, capacity;
};

struct gguf_writer {
  struct file_writer to;
  struct gguf_bytes keys, tensors;
  uint64_t key_count, tensor_count;
  uint64_t bytes;        // of the tensors declared so far, each with its padding
  uint64_t written;      // of them
  deltaic_status status; // the first error; later calls do nothing
};

// path must stay valid until the end.
void gguf_writer_begin(struct gguf_writer *w, const char *path);
void gguf_key_text(struct gguf_writer *w, const char *key, const char *text, uint64_t bytes);
void gguf_key_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_key_f32(struct gguf_writer *w, const char *key, float value);
void gguf_key_bool(struct gguf_writer *w, const char *key, bool value);
// A list of texts, of booleans or of 32-bit integers, whichever the list begins with. A list without elements is one of
// texts.
void gguf_key_list(struct gguf_writer *w, const char *key, const json_t *list);
// A key as it is in a file: its name, type and value.
void gguf_key_bytes(struct gguf_writer *w, const char *bytes, uint64_t count);

// shape: outermost first.
void gguf_declare(struct gguf_writer *w, const char *name, int rank, const uint64_t *shape,
                  const struct gguf_type *type, uint64_t bytes);
// Call it after the last declaration.
void gguf_write_header(struct gguf_writer *w);
void gguf_append(struct gguf_writer *w, const void *data, uint64_t bytes);
void gguf_tensor_end(struct gguf_writer *w); // after the last bytes of each tensor
// Call it even after a failure.
deltaic_status gguf_writer_end(struct gguf_writer *w);
#endif
