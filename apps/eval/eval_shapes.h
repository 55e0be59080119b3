// eval_shapes.h: how the cases of known data sets are read from their JSON: a table.
#ifndef EVAL_SHAPES_H
#define EVAL_SHAPES_H
#include "eval.h"

enum { SHAPE_CHOICES = 4 };

// Templates: {path} is a value of the record, {path:filter} a filtered one; a path is keys with dots between, and
// alternatives with | between: the first one there is. Filters: see eval_shapes.c.
struct shape {
  const char *name, *about;
  enum eval_kind kind;
  const char *context, *context_filter; // a filter of the whole; NULL: none
  const char *choices[SHAPE_CHOICES];   // of continuations; CLOZE: the target
  const char *contexts[SHAPE_CHOICES];  // contexts to choose from, all continued by choices[0]
  const char *list, *list_filter;       // or a path to all choices; [] stands for every item of a list
  const char *gold;                     // path to: a number, where base is 0 true or false, A, B, ..., one of `names`
  const char *names;                    // path with []
  int base;                             // what the first choice is called
  const char *labels;                   // the file of golds beside the data: its end in place of ".jsonl"; NULL: none
  bool lines;                           // may be plain text, a case a line: {"text": line}
  bool documents;                       // WikiText's raw file, cut at headings
};

const struct shape *shape_find(const char *name);
const struct shape *shape_at(size_t i); // NULL: the end
// Adds the record's case to the task. label: the line of the labels' file, or NULL. false: `problem` has a sentence.
bool shape_read(const struct shape *shape, const json_t *record, const char *label, size_t line, struct eval_task *task,
                char problem[120]);
#endif
