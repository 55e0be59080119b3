// checkpoint.h: a checkpoint's tensors by name, from one model.safetensors, from shards with an index, or from a GGUF
// file and the parts that belong to it.
#ifndef CHECKPOINT_H
#define CHECKPOINT_H
#include "safetensors.h"

struct checkpoint; // tensors sorted by name, and the mapped files

// path: a folder, a .safetensors file, or a GGUF file (of several parts, the first).
deltaic_status checkpoint_open(const char *path, struct checkpoint **out) INSIDE(checkpoint_open);
// The same for a model: a folder that also has a config.json, or a GGUF file.
deltaic_status checkpoint_open_folder(const char *path, struct checkpoint **out) INSIDE(checkpoint_open_folder);
// The same from a caller's source (deltaic.h), which must stay valid until the checkpoint is closed. NULL: the file
// system.
deltaic_status checkpoint_open_from(const deltaic_source *source, const char *path, struct checkpoint **out);
const deltaic_source *checkpoint_source(const struct checkpoint *checkpoint);
// The first failure of reading from the source.
deltaic_status checkpoint_status(const struct checkpoint *checkpoint);
void checkpoint_close(struct checkpoint *checkpoint) INSIDE(checkpoint_close); // accepts NULL
// The same for the bytes of one file, which the caller keeps alive (tests, fuzzing).
deltaic_status checkpoint_parse(const char *name, const void *data, size_t bytes, struct checkpoint **out);
uint64_t checkpoint_count(const struct checkpoint *checkpoint) INSIDE(checkpoint_count);
struct file_tensor *checkpoint_at(struct checkpoint *checkpoint, uint64_t i) INSIDE(checkpoint_at);
struct file_tensor *checkpoint_find(struct checkpoint *checkpoint, const char *name)
    INSIDE(checkpoint_find); // NULL: not found
// printf-style name.
__attribute__((format(printf, 2, 3))) struct file_tensor *checkpoint_findf(struct checkpoint *checkpoint,
                                                                           const char *format, ...);
const char *checkpoint_path(const struct checkpoint *checkpoint); // for messages
// Refuses to have a file written that the model is read from.
deltaic_status checkpoint_spare(const struct checkpoint *checkpoint, const char *path);
// A string of the header's __metadata__, or NULL.
const char *checkpoint_metadata(const struct checkpoint *checkpoint, const char *key) INSIDE(checkpoint_metadata);
// The keys of a GGUF file (gguf.h); NULL: the checkpoint is safetensors.
const json_t *checkpoint_keys(const struct checkpoint *checkpoint) INSIDE(checkpoint_keys);
// A list of its tokenizer, which keys do not have, and the next element of it; empty: there is none.
struct gguf_list checkpoint_list(const struct checkpoint *checkpoint, const char *name);
bool checkpoint_next(const struct checkpoint *checkpoint, struct gguf_list *list, struct gguf_element *out);
#endif
