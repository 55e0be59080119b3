// generation.h: reads which tokens end a text and how the model's makers want tokens to be drawn. Both come from
// generation_config.json; the ends also from config.json and tokenizer_config.json (docs/models.md).
#ifndef GENERATION_H
#define GENERATION_H
#include "json.h"

struct checkpoint;
enum { MOST_ENDS = 32 };

// Tokens that end a text: different ids, the first one is the most usual.
struct ends {
  int32_t ids[MOST_ENDS];
  uint32_t count;
};

struct generation {
  struct ends ends;
  bool has_sampling; // the file says how to draw
  deltaic_sampling sampling;
};

// Adds an id. Does nothing if it is there or negative. `file` is for the message if there are too many.
deltaic_status ends_add(struct ends *ends, const char *file, int64_t id);
bool ends_have(const struct ends *ends, int32_t id);
// Adds the key's number or list of numbers, each from -1 (none) to V - 1. Missing or null: nothing.
void ends_read(struct json_reader *r, const json_t *object, const char *key, uint32_t V, struct ends *ends);

// Reads generation_config.json, whose ends replace those in *out. Without that file it adds the eos_token of
// tokenizer_config.json.
deltaic_status generation_read(const deltaic_source *source, const char *folder, uint32_t V, struct generation *out);
// The same from the text of a generation_config.json (tests, fuzzing). Messages name `file`.
deltaic_status generation_parse(const char *file, const char *text, size_t bytes, uint32_t V, struct generation *out);
// Key of a GGUF file: a list of all end tokens, where they are more than the keys of llama.cpp.
#define KEY_ENDS "deltaic.eos_token_ids"
// Reads the sampling of a GGUF file and adds its ends: the ids that its keys give, and the control tokens of the
// released families that end a text, since a file names only some of them.
deltaic_status generation_of_gguf(const struct checkpoint *checkpoint, uint32_t V, struct generation *out);
#endif
