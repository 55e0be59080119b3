// method.h: what a pruning method is. It sees what was measured of one head and says which of its d channels (of keys
// and queries alike) to keep, or, pca, onto which directions to project them. It knows no model and no file.
//
// A new method is a file with one `const struct prune_method`, and a line in the table of method.c. A method that needs
// something else measured (gradients, say) adds a field to struct prune_head and a PRUNE_NEEDS_ bit.
// Thread-safety: no state; heads may be selected by several threads at once, each with its own result.
#ifndef METHOD_H
#define METHOD_H
#include "matrix.h"

// Sums over tokens of one head's channels; a part that was not measured is {0}.
struct prune_moments {
  int64_t rows;
  const double *gram; // (d, d) sum of x x^T
  const double *sum;  // (d) sum of x, or NULL
};

// What was measured of one head. DeltaProduct: the keys of all steps count as keys.
struct prune_head {
  int d;                     // channels
  int blocks;                // Head-in-Head: as many are kept in each of r equal blocks; 0: 1, which methods get
  uint64_t id;               // number of the head in the model: random takes another set for each
  struct prune_moments q, k; // activations: after convolution and SiLU, before L2 normalization
  struct prune_moments q_unit, k_unit; // the same, L2-normalized
  struct matrix_rows q_rows, k_rows;   // the activations themselves
  const float *wq;                     // (d, hidden) rows of q_proj
  const float *const *wk;              // (steps) of (d, hidden) rows of k_proj
  int steps, hidden;
  const double *input_squares; // (hidden) sum of squares of the projections' inputs over the tokens
};

enum prune_side { PRUNE_BOTH, PRUNE_KEYS, PRUNE_QUERIES };
enum prune_route { PRUNE_GRAM, PRUNE_ROWS };

struct prune_options { // zero means default
  enum prune_side side;
  uint64_t seed;          // random
  enum prune_route route; // drrqr
  double tolerance;       // drrqr: f >= 1; 0: 1.5
  int swap_limit;         // drrqr; 0: until no swap is left (like_reference: 20)
  bool adversarial;       // pca: the directions of least variance
  // What the published code does where it differs. drrqr: at most 20 swaps, none when a diagonal entry of A is below
  // 1e-9. pca: a centred covariance; for `both` with the mean subtracted at half its weight.
  bool like_reference;
};

struct prune_swap {
  int dropped, taken; // channels
  double gain;        // rho: the kept channels' volume was multiplied by this
};

struct prune_result { // {0} before the call; of one call; prune_result_free()
  int d, keep;
  int *kept;          // (keep) channels, ascending; NULL for a projection
  int *order;         // (keep) the same as the method ranked them, best first
  double *projection; // (keep, d) row-major, orthonormal rows: pca only
  double *scores;     // (d) what the method ranked by; pca: variances along all directions, best first; drrqr: NULL
  // drrqr:
  int rank, dead; // independent channels found, channels that are zero
  int swap_count;
  struct prune_swap *swaps;
  bool settled;      // no swap above f was left
  double rho;        // the largest that was left
  double log_volume; // of the kept channels; -infinity when they are dependent
};

enum {
  PRUNE_NEEDS_WEIGHTS = 1,
  PRUNE_NEEDS_INPUTS = 2,      // input_squares
  PRUNE_NEEDS_ACTIVATIONS = 4, // q and k, or q_rows and k_rows, as the route says
  PRUNE_NEEDS_UNIT_MOMENTS = 8,
};

struct prune_method {
  const char *name;
  const char *about; // one line for --help
  unsigned needs;
  // Fills what it knows of `out`, whose kept, order and scores have their memory, and sets `order`.
  deltaic_status (*select)(const struct prune_head *head, int keep, const struct prune_options *options,
                           struct prune_result *out);
};

const struct prune_method *prune_method_at(int i); // NULL beyond the last
const struct prune_method *prune_method_find(const char *name);

// keep of head->d channels by the method. options: NULL for the defaults. 1 <= keep <= d, a multiple of the blocks.
deltaic_status prune_select(const struct prune_method *method, const struct prune_head *head, int keep,
                            const struct prune_options *options, struct prune_result *out);
void prune_result_free(struct prune_result *result);

// max(1, floor(d (1 - ratio))), in double precision as the published code has it; blocks: rounded down to a multiple,
// at least one each. 0 <= ratio < 1.
deltaic_status prune_target(int d, double ratio, int blocks, int *keep);

// method_scores, for methods that score channels. The best by score, equal ones by number, as many in every block.
void prune_take_best(const struct prune_head *head, int keep, struct prune_result *out);
// s_j = sum_i (|wq_ji| + |wk_ji|) scale_i over the side's rows and all steps; scale NULL: ones.
void prune_weight_scores(const struct prune_head *head, enum prune_side side, const double *scale, double *scores);
#endif
