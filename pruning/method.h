// method.h: declares the interface of a pruning method. A method reads the statistics of one head and selects which of
// its d channels (of keys and queries alike) to keep; pca instead returns a projection. It knows no model and no file.
//
// To add a method, write a file with one `const struct prune_method` and add it to the table of method.c. If it needs
// another measurement (e.g. gradients), add a field to struct prune_head and a PRUNE_NEEDS_ bit. Thread-safety: no
// state; threads may select heads at the same time, each with its own result.
#ifndef METHOD_H
#define METHOD_H
#include "matrix.h"

// Sums over the tokens of one head's channels; {0} if they were not measured.
struct prune_moments {
  int64_t rows;
  const double *gram; // (d, d) sum of x x^T
  const double *sum;  // (d) sum of x, or NULL
};

// The measurements of one head. With DeltaProduct, the keys of all steps are included in k.
struct prune_head {
  int d;       // channels
  int blocks;  // Head-in-Head: each of r equal blocks keeps the same number of channels; methods see 1, never 0
  uint64_t id; // number of the head in the model; random derives its seed from it
  struct prune_moments q, k;           // activations after convolution and SiLU, before L2 normalization
  struct prune_moments q_unit, k_unit; // the same after L2 normalization
  struct matrix_rows q_rows, k_rows;   // the activations themselves
  const float *wq;                     // (d, hidden) rows of q_proj
  const float *const *wk;              // (steps) of (d, hidden) rows of k_proj
  int steps, hidden;
  const double *q_saliency, *k_saliency; // (d) sums of |weight times gradient|, of the keys over all steps
  const double *input_squares;           // (hidden) sum of squares of the projections' inputs over the tokens
};

enum prune_side { PRUNE_BOTH, PRUNE_KEYS, PRUNE_QUERIES };
enum prune_route { PRUNE_GRAM, PRUNE_ROWS };

struct prune_options { // zero means default
  enum prune_side side;
  uint64_t seed;          // random
  enum prune_route route; // drrqr
  double tolerance;       // drrqr: f >= 1; 0: 1.5
  int swap_limit;         // drrqr; 0: until no swap is left (like_reference: 20)
  bool adversarial;       // pca: use the directions of least variance
  // Reproduces the published code where it differs. drrqr: at most 20 swaps, and none if a diagonal entry of A is below
  // 1e-9. pca: a centred covariance; for `both`, the mean is subtracted at half its weight.
  bool like_reference;
};

struct prune_swap {
  int dropped, taken; // channels
  double gain;        // rho: the factor by which the swap multiplied the volume of the kept channels
};

struct prune_result { // {0} before the only call that fills it; release it with prune_result_free()
  int d, keep;
  int *kept;          // (keep) channels, ascending; NULL for a projection
  int *order;         // (keep) the kept channels in the method's ranking, best first
  double *projection; // (keep, d) row-major, orthonormal rows: pca only
  double *scores;     // (d) the scores of the ranking; pca: variances along all directions, best first; drrqr: NULL
  // drrqr:
  int rank, dead; // number of independent channels, number of zero channels
  int swap_count;
  struct prune_swap *swaps;
  bool settled;      // true if no swap with rho above f remained
  double rho;        // the largest rho that remained
  double log_volume; // of the kept channels; -infinity when they are dependent
};

enum {
  PRUNE_NEEDS_WEIGHTS = 1,
  PRUNE_NEEDS_INPUTS = 2,      // input_squares
  PRUNE_NEEDS_ACTIVATIONS = 4, // q and k, or q_rows and k_rows, depending on the route
  PRUNE_NEEDS_UNIT_MOMENTS = 8,
  PRUNE_NEEDS_GRADIENTS = 16, // q_saliency and k_saliency
};
// What statistics of activations must be there for.
enum { PRUNE_NEEDS_MEASUREMENTS = PRUNE_NEEDS_INPUTS | PRUNE_NEEDS_ACTIVATIONS | PRUNE_NEEDS_UNIT_MOMENTS };

struct prune_method {
  const char *name;
  const char *about; // one line for --help
  unsigned needs;
  // Sets `order` and any other field of `out` that the method computes. kept, order and scores are already allocated.
  deltaic_status (*select)(const struct prune_head *head, int keep, const struct prune_options *options,
                           struct prune_result *out);
};

const struct prune_method *prune_method_at(int i); // NULL if i is out of range
const struct prune_method *prune_method_find(const char *name);

// Selects keep of head->d channels. options: NULL for the defaults. 1 <= keep <= d, and keep is a multiple of blocks.
deltaic_status prune_select(const struct prune_method *method, const struct prune_head *head, int keep,
                            const struct prune_options *options, struct prune_result *out);
void prune_result_free(struct prune_result *result);

// Sets *keep = max(1, floor(d (1 - ratio))), in double precision like the published code, rounded down to a multiple of
// `blocks` but to at least one channel per block. 0 <= ratio < 1.
deltaic_status prune_target(int d, double ratio, int blocks, int *keep);

// For methods that score channels: takes the best channels, the same number per block. Ties go to the lower number.
void prune_take_best(const struct prune_head *head, int keep, struct prune_result *out);
// Computes s_j = sum_i (|wq_ji| + |wk_ji|) scale_i over the rows of `side` and all steps; NULL means scale_i = 1.
void prune_weight_scores(const struct prune_head *head, enum prune_side side, const double *scale, double *scores);
#endif
