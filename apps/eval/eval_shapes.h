// eval_shapes.h: declares a table that describes how to read the cases of known data sets from their JSON.
#ifndef EVAL_SHAPES_H
#define EVAL_SHAPES_H
#include "eval.h"

enum { SHAPE_CHOICES = 4 };

// In a template {path} is a value of the record, and {path:filter} is a filtered value. A path is keys joined by dots;
// of alternatives joined by | the first that exists is used. eval_shapes.c lists the filters.
struct shape {
  const char *name, *about;
  enum eval_kind kind;
  const char *context, *context_filter; // filter of the whole context; NULL: none
  const char *choices[SHAPE_CHOICES];   // templates of the continuations; CLOZE: the target
  const char *contexts[SHAPE_CHOICES];  // contexts to choose from, all continued by choices[0]
  const char *list, *list_filter;       // alternative: path to all choices; [] stands for every item of a list
  const char *gold;   // path to the correct choice: a number, true or false (base 0), A, B, ..., or one of `names`
  const char *names;  // path with [] to the names
  int base;           // number of the first choice
  const char *labels; // suffix of the labels' file in place of ".jsonl"; NULL: none
  bool lines;         // the file may be plain text with a case per line: {"text": line}
  bool documents;     // WikiText's raw file, which is split at headings
};

const struct shape *shape_find(const char *name);
const struct shape *shape_at(size_t i); // NULL after the last
// Adds the record's case to the task. label: line of the labels' file, or NULL. On failure `problem` says why.
bool shape_read(const struct shape *shape, const json_t *record, const char *label, size_t line, struct eval_task *task,
                char problem[120]);
#endif
