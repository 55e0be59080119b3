// eval_made.h: tests computed now, each from a seed: recall, needles, state tracking, arithmetic.
#ifndef EVAL_MADE_H
#define EVAL_MADE_H
#include "eval.h"

struct made_options {
  struct count_list lengths;
  uint32_t cases; // texts of each length
  uint64_t seed;
  uint32_t pairs, keys, values, writes; // of mqar
  uint32_t modulus;
  const char *group;
  const char *haystack;   // a file of real text
  const char *checkpoint; // whose tokens needles' lengths are counted in; NULL: the default one
};

struct maker {
  const struct made_options *options;
  deltaic_tokenizer *tokenizer; // needles only
  char *haystack;               // real text, white space made single spaces; repeated text's unit
  struct eval_task *task;
  struct sha256 *hash;
  FILE *stream; // NULL: no file
  uint64_t random;
  int code;
};

struct made {
  const char *name, *about;
  struct count_list lengths; // where the user names none
  uint32_t new_tokens;
  const char *own;                                   // options that are nothing to others: "group"
  int (*begin)(struct maker *m);                     // checks options; NULL: nothing to do
  json_t *(*text)(struct maker *m, uint32_t length); // a case; NULL after a complaint, m->code set
  int (*texts)(struct maker *m, uint32_t length);    // or all cases of a text; an exit code
};

const struct made *made_find(const char *name);
const struct made *made_at(size_t i); // NULL: the end
// Whether the task has all the options that are given; an exit code.
int eval_options_check(const char *task, const struct arguments *arguments);
// Makes the task's cases, and writes them as JSONL where `path` is not NULL. An exit code.
int made_task(const struct made *made, const struct made_options *options, const char *path, struct eval_task *task);

// eval_needle.c
int needle_begin(struct maker *m);
json_t *needle_number(struct maker *m, uint32_t length);
json_t *needle_uuid(struct maker *m, uint32_t length);
#endif
