// eval.h: what the parts of `deltaic eval` share: tasks made of cases, cases made of requests, and their scores.
#ifndef EVAL_H
#define EVAL_H
#include "common.h" // progress
#include "engine.h"
#include "print.h"

#include <stdio.h>

// What a case asks and how it is judged.
enum eval_kind {
  EVAL_CHOICE, // which of several continuations is the likeliest
  EVAL_CLOZE,  // how likely one continuation is, and whether greedy decoding gives it
  EVAL_RECALL, // whether greedy decoding gives a text that contains an answer
  EVAL_ROLLING // how likely a whole document is, per word and per byte
};

// Text, or token ids where `text` is NULL.
struct eval_text {
  char *text;
  int32_t *ids;
  size_t count; // bytes or ids
};

struct eval_choice {
  struct eval_text context;   // its own one; without text and ids: the case's
  struct eval_text text;      // the continuation, with the delimiter before it
  uint32_t characters, bytes; // of the choice alone
};

struct eval_case {
  size_t line;    // of the file, from 1
  char group[32]; // "" or what the table separates by: a length
  uint32_t gold;  // the right choice
  size_t choices; // CHOICE: 2 or more; else 1
  struct eval_text context;
  struct eval_choice *choice;
  char **answers; // RECALL: one of them is enough
  size_t answer_count;
  char *until;           // RECALL: where the continuation ends; NULL: nowhere
  uint64_t words, bytes; // ROLLING: of the document as it was
  bool whole;            // never cut to the longest text
};

struct eval_task {
  char name[64];
  const char *file;
  char hash[65]; // SHA-256 of the file, and its labels after it; of the cases as JSONL where they were computed now
  enum eval_kind kind;
  bool kind_known;
  bool lengths; // the groups are lengths
  struct eval_case *cases;
  size_t count, capacity;
  size_t refused; // lines left out
  json_t *recipe; // what made the cases on the spot; NULL: a file
};

struct eval_options {
  struct engine_options engine;
  uint32_t limit;      // cases; 0: all
  uint32_t max_length; // tokens of a window; 0: the config's
  uint32_t new_tokens; // RECALL
  bool no_bos;
  bool skip_bad;
  bool busy; // measure how busy the device is
};

// ---------------------------------------------------------------- eval_task: lists of cases

struct eval_case *eval_task_add(struct eval_task *task, size_t line, size_t choices);
void eval_case_free(struct eval_case *c);
void eval_task_free(struct eval_task *task);
struct eval_text eval_text_of(const char *text, size_t bytes); // a copy

// ---------------------------------------------------------------- eval_file: task files

// name: a row of the table of data sets, or a JSONL file of cases. data: the data set's file. An exit code.
int eval_task_read(const char *name, const char *data, const struct eval_options *options, struct eval_task *task);
// Keeps the first cases; 0: all.
void eval_task_limit(struct eval_task *task, uint32_t limit);
// Adds {"context", ...}. An exit code.
int eval_task_add_json(struct eval_task *task, const json_t *record);
// Names of the data sets for --help, "lambada, piqa, ..."; to free().
char *eval_data_sets(void);
bool eval_is_data_set(const char *name);
const char *eval_data_set(size_t i); // names in order; NULL: the end

// ---------------------------------------------------------------- eval_encode: cases -> requests

// Tokens of which the first `context` are given. Scored: the rest. Continued: `make` tokens are drawn, context ==
// count.
struct request {
  int32_t *ids;
  uint32_t count, context;
  uint32_t make;
  uint32_t index, choice; // of the case
};

struct requests {
  struct request *items;
  size_t count, capacity;
};

struct encoder {
  const struct eval_options *options;
  const struct eval_task *task;
  deltaic_tokenizer *tokenizer; // NULL: the checkpoint has none
  deltaic_model_info info;
  uint32_t max_length;
  char prefix[64]; // the prefix token's text; "": none
};
// Opens the tokenizer and reads the longest text from the config. Exit codes.
int encoder_open(struct encoder *e, const char *model, const struct eval_options *options,
                 const struct eval_task *task);
void encoder_close(struct encoder *e);
int encode_case(const struct encoder *e, size_t index, struct requests *out);
void requests_free(struct requests *requests);

// ---------------------------------------------------------------- eval_score: requests -> scores

struct request_score {
  double ll;     // sum of log-likelihoods
  bool greedy;   // every scored token was the likeliest
  int32_t *made; // what was drawn; valid during the call
  uint32_t made_count;
};

struct scorer {
  const struct engine *engine;
  const struct engine_options *options; // with the model's path
  struct progress *progress;
  bool busy;                   // to be measured
  double busy_seconds;         // of the device, where it is
  uint64_t tokens;             // in all requests
  uint64_t planned, evaluated; // for the device: fewer where beginnings are shared
  // Called once for each request, in any order; false stops.
  bool (*done)(void *user, const struct request *request, const struct request_score *score);
  void *user;
};
// Evaluates what requests have in common once. Sorts the requests. An exit code.
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
  char *made;                  // RECALL: the continuation's text
};

enum { EVAL_METRICS = 6 };

// A metric is a function of a mean: transform(sum x / sum w).
enum eval_transform { EVAL_MEAN, EVAL_PERPLEXITY, EVAL_BITS }; // x; exp(-x); -x / ln 2
struct eval_metric {
  const char *name;
  enum eval_transform transform;
  bool weighted; // sum w is not the number of cases
};

struct eval_value {
  double value, error;
  double mean, mean_error; // before the transform
};

// The metrics of a kind of task; their number.
size_t eval_metrics(const struct eval_task *task, const struct eval_metric **metrics);
// NULL: there is none of this name.
const struct eval_metric *eval_metric_named(const char *name);
// What case i adds to a metric: x and its weight.
void eval_sample(const struct eval_task *task, const struct case_score *scores, size_t i, size_t metric, double *x,
                 double *w);
// Over n samples.
struct eval_value eval_value_of(const struct eval_metric *metric, const double *x, const double *w, size_t n);

// ---------------------------------------------------------------- eval_log: finished cases on disk

struct eval_result {
  const char *checkpoint;
  struct text name; // of tables
  uint64_t fingerprint;
  char device[600];
  uint32_t max_length;
  struct case_score *scores; // (cases)
  size_t done, resumed;
  uint64_t tokens, evaluated;
  double seconds;
  double busy_seconds; // of these the device had work; 0: not measured
};

// Lines of JSON: one that says what is run, then one for each finished case. What a log already has for the same task,
// checkpoint and options is not run again.
struct eval_log {
  const char *path;
  FILE *stream;
  char key[17]; // of task, checkpoint and options
};
// Reads the scores that are there into the result, whose checkpoint and device are known. An exit code.
int eval_log_open(struct eval_log *log, const char *path, const struct eval_task *task,
                  const struct eval_options *options, struct eval_result *result);
// false after a complaint.
bool eval_log_add(struct eval_log *log, const struct eval_task *task, size_t index, const struct case_score *score);
int eval_log_close(struct eval_log *log);

// ---------------------------------------------------------------- eval_run: a task on a checkpoint

// EXIT_INTERRUPTED leaves what is done. An exit code.
int eval_run(const struct eval_task *task, const struct eval_options *options, const char *log,
             struct eval_result *out);
void eval_result_free(const struct eval_task *task, struct eval_result *result);

// ---------------------------------------------------------------- eval_report, eval_compare

// The cases that share what the table separates by, in the task's order.
struct eval_group {
  const char *name; // the task's; NULL: all cases
  size_t *cases;    // their numbers
  size_t count;
};
// The groups in the order of their first cases, and without a name last, all cases: count + 1. To eval_groups_free().
struct eval_group *eval_groups(const struct eval_task *task, size_t *count);
void eval_groups_free(struct eval_group *groups);
// The finished cases of a group as samples of a metric; x, w: (its cases). Their number.
size_t eval_samples(const struct eval_task *task, const struct eval_result *r, const struct eval_group *group,
                    size_t metric, double *x, double *w);
void eval_print(const struct eval_task *task, const struct eval_result *results, size_t count);
int eval_print_json(const struct eval_task *task, const struct eval_options *options, const struct eval_result *results,
                    size_t count);
// The first metric over groups that are numbers, as a PNG file; check: whether they are. Exit codes.
int eval_plot_check(const struct eval_task *task);
int eval_plot(const struct eval_task *task, const struct eval_result *results, size_t count, const char *path);
// An exit code.
int eval_compare(const char *first, const char *second, bool as_json);
#endif
