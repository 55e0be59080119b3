// tune_rows.h: the rows of tokens that a training reads, of texts or of a synthetic task.
#ifndef TUNE_ROWS_H
#define TUNE_ROWS_H
#include "corpus.h"
#include "demo_groups.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tune_piece { // a row of a text
  size_t first;
  uint32_t count;
};

struct tune_rows {
  uint32_t length; // tokens of a row; the last one is only predicted
  // Texts:
  struct corpus texts;
  struct tune_piece *pieces;
  size_t piece_count;
  bool in_order;
  uint64_t seed;
  uint32_t *order; // of the pieces in pass `pass`
  uint64_t pass;
  // A task, whose rows are without end; group: its words, else recall.
  bool task;
  struct group group;
  uint32_t pairs, keys, values;
};

// How texts become rows. separate: every line of a file, record of JSONL, or file of tokens begins a row of its own;
// else all are one text. A row has at most `window` tokens, and the last row of a text what is left.
struct tune_reading {
  struct corpus_reading texts;
  uint32_t window;
};

// Each returns an exit code, and prints a message if it is not EXIT_OK.
int rows_read(struct tune_rows *rows, const struct tune_reading *reading, const char *const *files, size_t count);
// name: "S3" and so on, or NULL for recall with `pairs`, `keys` and `values`. length: elements, or tokens of the pairs
// and queries.
int rows_of_group(struct tune_rows *rows, const char *name, uint32_t length);
int rows_of_recall(struct tune_rows *rows, uint32_t length);
// The task's tokens, which the caller frees with `free` for each and the list.
char **rows_words(const struct tune_rows *rows, size_t *count);
void rows_free(struct tune_rows *rows);
// Row k of an endless stream: tokens (length), targets (length - 1) as in deltaic_tune_batch.
void rows_fill(struct tune_rows *rows, uint64_t k, int32_t *tokens, int32_t *targets);
uint64_t rows_hash(const struct tune_rows *rows);
#endif
