// validate.h: declares what the parts of `deltaic validate` share: reference tensors, distances from them, reports.
#ifndef VALIDATE_H
#define VALIDATE_H
#include "engine.h"
#include "precision.h"

enum { SOURCES = 8, NAME_CAPACITY = 64 };

// The numbers of one program in the file: the tensors without a prefix, or with a prefix such as "cuda_bf16.".
struct source {
  char name[NAME_CAPACITY]; // "", "cuda_bf16"
  enum precision precision;
  const char *text; // description in the file, or NULL
};

struct distance { // elementwise distance of our tensor from the reference
  double error, size, ours, dot, largest;
  uint64_t count;
};
double distance_relative(const struct distance *d); // RMS of the difference / RMS of the reference
double distance_cosine(const struct distance *d);

// Distances of the whole tensor, of each layer, and of each position (over all layers).
struct distances {
  struct distance all, *layers, *positions;
};

struct comparison {
  const struct source *source;
  const struct source *truth; // a more precise source that also has the tensor, or NULL
  const char *kind;           // "mixer_output", "logits"
  uint32_t probe;             // deltaic_probe_kind; 0: logits
  uint32_t piece;             // number of tokens evaluated at once; 0: all
  double limit;
  struct distances ours;   // distances of our tensor from the source
  struct distances theirs; // distances of the source from `truth`
};

struct greedy {
  size_t count, equal, close, wrong; // close: the token differs, but the margin is below the limit
  size_t first_wrong;
  int32_t expected, got; // tokens at first_wrong
  double margin, limit;
};

struct nll {
  bool there;
  double ours, reference[SOURCES]; // NaN if the source has none
};

struct validation {
  const char *path, *file; // paths of the checkpoint and of the reference
  struct engine engine;
  deltaic_tensors *tensors;
  struct source sources[SOURCES];
  size_t source_count;
  float limit; // --limit; 0: the limit of the precision
  bool fast;   // --precision fast
  int32_t *ids, *positions;
  size_t n, rows; // number of tokens; number of rows of logits
  int32_t layers, vocabulary;
  struct comparison *comparisons;
  size_t count;
  struct greedy greedy;
  struct nll nll;
};

// validate_file.c: reads the reference.
int reference_open(struct validation *v, const struct count_list *pieces);
void reference_close(struct validation *v);
int read_integers(const struct validation *v, const char *name, int32_t **out, size_t *count);
// A tensor's name such as "cuda_bf16.mixer_output".
struct tensor_name {
  char text[3 * NAME_CAPACITY];
};
struct tensor_name tensor_of(const struct source *source, const char *kind);

// validate_run.c: computes our tensors. Each function returns an exit code.
int run_tensors(struct validation *v, const struct engine_options *options);
int run_greedy(struct validation *v, const struct engine_options *options);
int run_nll(struct validation *v, const struct engine_options *options);

// validate_verdict.c: compares distances with limits.
int32_t first_layer_over(const struct comparison *c, int32_t layers); // -1: none
bool comparison_passes(const struct comparison *c, int32_t layers);
// Returns the comparison of our tensor with the truth of c, or NULL.
const struct comparison *against_truth(const struct validation *v, const struct comparison *c);
const struct precision_row *limits_of(const struct validation *v, const struct source *source);
double nll_limit(const struct validation *v, size_t source);
bool nll_passes(const struct validation *v);
// Describes the first failure in a sentence. It returns false if there is no failure.
bool first_failure(const struct validation *v, char *text, size_t capacity);

// validate_print.c
void validation_print(const struct validation *v, bool layers);
int validation_json(const struct validation *v);
int validation_plot(const struct validation *v, const char *path);
#endif
