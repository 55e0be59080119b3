// corpus.h: reads files as tokens of a model. A file is plain text; or JSONL (.jsonl, field "text" of each record, with
// the tokenizer's begin token and the model's end token); or tokens (.safetensors, integers of the tensor "tokens").
#ifndef CORPUS_H
#define CORPUS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct corpus {
  int32_t *tokens; // of all files
  size_t count;
  size_t *ends; // where each text ends, if texts are separate
  size_t end_count;
  uint64_t words, bytes; // of all texts; files of tokens add none
};

// separate: texts are a line of plain text, with begin and end tokens; a record; or a file of tokens.
struct corpus_reading {
  const char *model;
  uint32_t most; // tokens of all files; 0: no limit
  bool separate;
};

// Returns an exit code, and prints a message if it is not EXIT_OK. Token ids of .safetensors files are checked against
// the vocabulary.
int corpus_read(struct corpus *corpus, const struct corpus_reading *reading, const char *const *files, size_t count);
void corpus_free(struct corpus *corpus);
// Whether a file of this name is read as plain text.
bool corpus_is_plain(const char *path);
#endif
