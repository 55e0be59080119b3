// validate.h: what the parts of `deltaic validate` share: the reference's tensors, distances from them, reports.
#ifndef VALIDATE_H
#define VALIDATE_H
#include "engine.h"

// How the reference's numbers were computed, best first.
enum precision { PRECISION_F64, PRECISION_F32, PRECISION_TF32, PRECISION_F16, PRECISION_BF16, PRECISION_UNKNOWN };
struct precision_row {
  const char *name;   // "bfloat16"
  double relative;    // limit of a relative RMS
  double nll, margin; // limit of the NLL's difference; below this margin greedy choices may differ
  bool grows;         // roundings between layers: the limit grows with their number
};
extern const struct precision_row precision_rows[PRECISION_UNKNOWN + 1];

enum { SOURCES = 8, NAME_CAPACITY = 64 };

// One program's numbers in the file: the tensors without a prefix, or with "cuda_bf16.".
struct source {
  char name[NAME_CAPACITY]; // "", "cuda_bf16"
  enum precision precision;
  const char *text; // the file's own words, or NULL
};

struct distance { // of ours from a reference, element by element
  double error, size, ours, dot, largest;
  uint64_t count;
};
double distance_relative(const struct distance *d); // RMS of the difference / RMS of the reference
double distance_cosine(const struct distance *d);

// Distances of one tensor: all of it, of each layer, and of each position (all layers together).
struct distances {
  struct distance all, *layers, *positions;
};

struct comparison {
  const struct source *source;
  const struct source *truth; // a more precise source that has the tensor too, or NULL
  const char *kind;           // "mixer_output", "logits"
  uint32_t probe;             // deltaic_probe_kind; 0: logits
  uint32_t piece;             // tokens evaluated at once; 0: all
  double limit;
  struct distances ours;   // from the source
  struct distances theirs; // of the source from `truth`
};

struct greedy {
  size_t count, equal, close, wrong; // close: another token, but the margin is below the limit
  size_t first_wrong;
  int32_t expected, got; // there
  double margin, limit;
};

struct nll {
  bool there;
  double ours, reference[SOURCES]; // NaN where a source has none
};

struct validation {
  const char *path, *file; // checkpoint, reference
  struct engine engine;
  deltaic_tensors *tensors;
  struct source sources[SOURCES];
  size_t source_count;
  float limit; // --limit; 0: by precision
  int32_t *ids, *positions;
  size_t n, rows; // tokens; logits' rows
  int32_t layers, vocabulary;
  struct comparison *comparisons;
  size_t count;
  struct greedy greedy;
  struct nll nll;
};

// validate_file: what the reference holds.
int reference_open(struct validation *v, const struct count_list *pieces);
void reference_close(struct validation *v);
int read_integers(const struct validation *v, const char *name, int32_t **out, size_t *count);
// "cuda_bf16.mixer_output"
struct tensor_name {
  char text[3 * NAME_CAPACITY];
};
struct tensor_name tensor_of(const struct source *source, const char *kind);

// validate_run: ours. Each returns an exit code.
int run_tensors(struct validation *v, const struct engine_options *options);
int run_greedy(struct validation *v, const struct engine_options *options);
int run_nll(struct validation *v, const struct engine_options *options);

// Verdicts.
int32_t first_layer_over(const struct comparison *c, int32_t layers); // -1: none
bool comparison_passes(const struct comparison *c, int32_t layers);
// The comparison of ours with c's truth, or NULL.
const struct comparison *against_truth(const struct validation *v, const struct comparison *c);
double nll_limit(const struct validation *v, size_t source);
bool nll_passes(const struct validation *v);
// The first thing that fails, as a sentence; false: nothing does.
bool first_failure(const struct validation *v, char *text, size_t capacity);

// validate_print
void validation_print(const struct validation *v, bool layers);
int validation_json(const struct validation *v);
int validation_plot(const struct validation *v, const char *path);
#endif
