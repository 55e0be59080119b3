// eval.h: declares the data of `deltaic eval`: tasks made of cases, cases made of requests, and their scores.
#ifndef EVAL_H
#define EVAL_H
#include "common.h" // progress
#include "engine.h"
#include "print.h"

#include <stdio.h>

// The question of a case and how its answer is scored.
enum eval_kind {
  EVAL_CHOICE, // which of several continuations is the most likely
  EVAL_CLOZE,  // how likely one continuation is, and whether greedy decoding produces it
  EVAL_RECALL, // whether greedy decoding produces a text that contains an answer
  EVAL_ROLLING // how likely a whole document is, per word and per byte
};

// A text, or token ids if `text` is NULL.
struct eval_text {
  char *text;
  int32_t *ids;
  size_t count; // bytes or ids
};

struct eval_choice {
  struct eval_text context;   // context of this choice; without text and ids: the context of the case
  struct eval_text text;      // the continuation, with the preceding delimiter
  uint32_t characters, bytes; // length of the choice without the delimiter
};

struct eval_case {
  size_t line;    // line number in the file, from 1
  char group[32]; // the value that the table groups by, e.g. a length, or ""
  uint32_t gold;  // index of the correct choice
  size_t choices; // CHOICE: 2 or more; otherwise 1
  struct eval_text context;
  struct eval_choice *choice;
  char **answers; // RECALL: the accepted answers
  size_t answer_count;
  char *until;           // RECALL: the text that ends the continuation; NULL: none
  uint64_t words, bytes; // ROLLING: size of the original document
  bool whole;            // the case is never shortened to the maximum length
};

struct eval_task {
  char name[64];
  const char *file;
  char hash[65]; // SHA-256 of the file and its labels, or of the generated cases as JSONL
  enum eval_kind kind;
  bool kind_known;
  bool lengths; // the groups are lengths
  struct eval_case *cases;
  size_t count, capacity;
  size_t refused; // number of skipped lines
  json_t *recipe; // how the cases were generated; NULL: they are from a file
};

struct eval_options {
  struct engine_options engine;
  uint32_t limit;      // number of cases; 0: all
  uint32_t max_length; // tokens of a window; 0: the config's value
  uint32_t new_tokens; // RECALL
  bool no_bos;
  bool skip_bad;
  bool busy; // measure how long the device is busy
};

// ---------------------------------------------------------------- eval_task: lists of cases

struct eval_case *eval_task_add(struct eval_task *task, size_t line, size_t choices);
void eval_case_free(struct eval_case *c);
void eval_task_free(struct eval_task *task);
struct eval_text eval_text_of(const char *text, size_t bytes); // a copy

// ---------------------------------------------------------------- eval_file: task files

// Reads a task. name: a data set or a JSONL file of cases. data: the data set's file. It returns an exit code.
int eval_task_read(const char *name, const char *data, const struct eval_options *options, struct eval_task *task);
// Keeps only the first `limit` cases; 0: all.
void eval_task_limit(struct eval_task *task, uint32_t limit);
// Adds a case {"context", ...} and returns an exit code.
int eval_task_add_json(struct eval_task *task, const json_t *record);
// Returns the names of the data sets for --help, "lambada, piqa, ..."; the caller frees them.
char *eval_data_sets(void);
bool eval_is_data_set(const char *name);
const char *eval_data_set(size_t i); // names in order; NULL after the last

// ---------------------------------------------------------------- eval_encode: cases -> requests

// A sequence whose first `context` tokens are given. Either the rest is scored, or `make` tokens are generated; then
// context == count.
struct request {
  int32_t *ids;
  uint32_t count, context;
  uint32_t make;
  uint32_t index, choice; // indices of the case and of the choice
};

struct requests {
  struct request *items;
  size_t count, capacity;
};

struct encoder {
  const struct eval_options *options;
  const struct eval_task *task;
  deltaic_tokenizer *tokenizer; // NULL: the checkpoint has no tokenizer
  deltaic_model_info info;
  uint32_t max_length;
  char prefix[64]; // text of the prefix token; "": none
};
// Opens the tokenizer and reads the maximum length from the config. These functions return exit codes.
int encoder_open(struct encoder *e, const char *model, const struct eval_options *options,
                 const struct eval_task *task);
void encoder_close(struct encoder *e);
int encode_case(const struct encoder *e, size_t index, struct requests *out);
void requests_free(struct requests *requests);

// ---------------------------------------------------------------- eval_score: requests -> scores

struct request_score {
  double ll;     // sum of log-likelihoods
  bool greedy;   // every scored token was the most likely one
  int32_t *made; // the generated tokens; valid during the call
  uint32_t made_count;
};

struct scorer {
  const struct engine *engine;
  const struct engine_options *options; // include the model's path
  struct progress *progress;
  bool busy;                   // measure busy_seconds
  double busy_seconds;         // time that the device is busy, if measured
  uint64_t tokens;             // number of tokens in all requests
  uint64_t planned, evaluated; // tokens for the device; fewer if requests share prefixes
  // Called once for each request, in any order; returning false stops.
  bool (*done)(void *user, const struct request *request, const struct request_score *score);
  void *user;
};
// Evaluates shared prefixes once. It sorts the requests and returns an exit code.
int score_requests(struct scorer *scorer, struct requests *requests);

// ---------------------------------------------------------------- eval_result: scores of cases

struct choice_score {
  double ll;
  uint32_t tokens;
  bool greedy;
};

struct case_score {
  bool done;
  struct choice_score *choice; // (choices)
  char *made;                  // RECALL: text of the continuation
};

enum { EVAL_METRICS = 6 };

// A metric is a transform of a weighted mean: transform(sum x / sum w).
enum eval_transform { EVAL_MEAN, EVAL_PERPLEXITY, EVAL_BITS }; // x; exp(-x); -x / ln 2
struct eval_metric {
  const char *name;
  enum eval_transform transform;
  bool weighted; // true if sum w is not the number of cases
};

struct eval_value {
  double value, error;
  double mean, mean_error; // values before the transform
};

// Returns the number of metrics of the task's kind and sets *metrics.
size_t eval_metrics(const struct eval_task *task, const struct eval_metric **metrics);
// Returns the metric of this name, or NULL.
const struct eval_metric *eval_metric_named(const char *name);
// Sets x and w to what case i adds to a metric: a value and its weight.
void eval_sample(const struct eval_task *task, const struct case_score *scores, size_t i, size_t metric, double *x,
                 double *w);
// Computes the metric over n samples.
struct eval_value eval_value_of(const struct eval_metric *metric, const double *x, const double *w, size_t n);

// ---------------------------------------------------------------- eval_log: finished cases on disk

struct eval_result {
  const char *checkpoint;
  struct text name; // name in tables
  uint64_t fingerprint;
  char device[600];
  uint32_t max_length;
  struct case_score *scores; // (cases)
  size_t done, resumed;
  uint64_t tokens, evaluated;
  double seconds;
  double busy_seconds; // part of `seconds` in which the device was busy; 0: not measured
};

// A log of JSON lines: the first describes the run, and each further line holds a finished case. Cases that the log
// already has for the same task, checkpoint and options are not run again.
struct eval_log {
  const char *path;
  FILE *stream;
  char key[17]; // hash of task, checkpoint and options
};
// Reads the logged scores into the result, whose checkpoint and device must be set. It returns an exit code.
int eval_log_open(struct eval_log *log, const char *path, const struct eval_task *task,
                  const struct eval_options *options, struct eval_result *result);
// Returns false after printing a message.
bool eval_log_add(struct eval_log *log, const struct eval_task *task, size_t index, const struct case_score *score);
int eval_log_close(struct eval_log *log);

// ---------------------------------------------------------------- eval_run: a task on a checkpoint

// Runs a task and returns an exit code. With EXIT_INTERRUPTED, `out` holds the finished cases.
int eval_run(const struct eval_task *task, const struct eval_options *options, const char *log,
             struct eval_result *out);
void eval_result_free(const struct eval_task *task, struct eval_result *result);

// ---------------------------------------------------------------- eval_report, eval_compare

// The cases with the same group name, in the task's order.
struct eval_group {
  const char *name; // borrowed from the task; NULL: all cases
  size_t *cases;    // indices of the cases
  size_t count;
};
// Returns *count named groups in the order of their first cases, then the group of all cases. Free: eval_groups_free().
struct eval_group *eval_groups(const struct eval_task *task, size_t *count);
void eval_groups_free(struct eval_group *groups);
// Writes the metric's samples x, w of the group's finished cases (room: all its cases) and returns their number.
size_t eval_samples(const struct eval_task *task, const struct eval_result *r, const struct eval_group *group,
                    size_t metric, double *x, double *w);
void eval_print(const struct eval_task *task, const struct eval_result *results, size_t count);
int eval_print_json(const struct eval_task *task, const struct eval_options *options, const struct eval_result *results,
                    size_t count);
// Plot the first metric over numeric group names as a PNG file; the check tests for them. They return exit codes.
int eval_plot_check(const struct eval_task *task);
int eval_plot(const struct eval_task *task, const struct eval_result *results, size_t count, const char *path);
// Compares two results of `deltaic eval --json` and returns an exit code.
int eval_compare(const char *first, const char *second, bool as_json);
#endif
