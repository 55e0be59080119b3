// eval_made.h: generates tests from a seed: recall, needles, state tracking and arithmetic.
#ifndef EVAL_MADE_H
#define EVAL_MADE_H
#include "eval.h"

struct made_options {
  struct count_list lengths;
  uint32_t cases; // number of sequences of each length
  uint64_t seed;
  uint32_t pairs, keys, values, writes; // options of mqar
  uint32_t modulus;
  const char *group;
  const char *haystack;   // a file of real text
  const char *checkpoint; // its tokens measure the lengths of needle tests; NULL: the default checkpoint
};

struct maker {
  const struct made_options *options;
  deltaic_tokenizer *tokenizer; // only for needle tests
  char *haystack;               // real text with white space replaced by single spaces, or the unit of repeated text
  struct eval_task *task;
  struct sha256 *hash;
  FILE *stream; // NULL: no file is written
  uint64_t random;
  int code;
};

struct made {
  const char *name, *about;
  struct count_list lengths; // default lengths
  uint32_t new_tokens;
  const char *own;                                   // option that only this test has: "group"
  int (*begin)(struct maker *m);                     // checks the options; NULL: nothing to check
  json_t *(*text)(struct maker *m, uint32_t length); // makes a case; on failure it sets m->code and returns NULL
  int (*texts)(struct maker *m, uint32_t length);    // instead makes all cases of a sequence; returns an exit code
};

const struct made *made_find(const char *name);
const struct made *made_at(size_t i); // NULL after the last
// Checks that the task has all the given options. It returns an exit code.
int eval_options_check(const char *task, const struct arguments *arguments);
// Generates the task's cases and writes them as JSONL unless `path` is NULL. It returns an exit code.
int made_task(const struct made *made, const struct made_options *options, const char *path, struct eval_task *task);

// eval_needle.c
int needle_begin(struct maker *m);
json_t *needle_number(struct maker *m, uint32_t length);
json_t *needle_uuid(struct maker *m, uint32_t length);
#endif
