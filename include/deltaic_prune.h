/* deltaic_prune.h: shrinks the states of a trained model by removing key channels from each head of its delta-rule
 * layers ("The Key to State Reduction in Linear Attention"). The conventions of deltaic.h apply. These functions are in
 * a library of their own, libdeltaic_prune, which needs LAPACK, and libdeltaic of the same version.
 *
 *   statistics   measurements by calibration, which streams a text's tokens through the model
 *   selection    the channels that every head keeps, and measures of their quality
 *   pruning      a smaller checkpoint under construction beside its final path: write, refit, try, then commit
 *
 *   deltaic_statistics_create(path, &calibration, &statistics);
 *   deltaic_calibrate(statistics, model, tokens, count, NULL, NULL);
 *   deltaic_select(path, statistics, &options, &selection);
 *   deltaic_pruning_begin(path, selection, out, NULL, &pruning);
 *   deltaic_pruning_refit(pruning, device, model, tokens, count, NULL, NULL, NULL);
 *   deltaic_pruning_commit(pruning);
 *
 * Only calibration and refit need a device; the rest works on files. The whole header is experimental. */
#ifndef DELTAIC_PRUNE_H
#define DELTAIC_PRUNE_H

#include "deltaic.h"

/* DELTAIC_PRUNE_BUILD: while the library itself is compiled. */
#if defined(DELTAIC_PRUNE_BUILD) && defined(_WIN32)
#define DELTAIC_PRUNE_API __declspec(dllexport)
#elif defined(DELTAIC_PRUNE_BUILD) && defined(__GNUC__)
#define DELTAIC_PRUNE_API __attribute__((visibility("default")))
#else
#define DELTAIC_PRUNE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- ranks */

/* How much of a matrix is used, from its singular values s_1 >= s_2 >= ... The zero matrix has 0 everywhere.
 * Experimental. */
typedef struct deltaic_rank {
  double stable_rank;  /* sum s_i^2 / s_1^2, the papers' effective rank */
  double utilization;  /* stable rank / min(rows, cols) */
  double entropy_rank; /* exp(- sum p_i ln p_i), p_i = s_i / sum s */
  double condition;    /* s_1 / the smallest s_i that counts */
  int32_t rank;        /* singular values that count */
} deltaic_rank;
/* a: rows * cols numbers, row after row. zero: s_i counts when it is above zero * s_1. values: the min(rows, cols)
 * singular values, or NULL. */
DELTAIC_PRUNE_API deltaic_status deltaic_matrix_rank(const float *a, size_t rows, size_t cols, double zero,
                                                     deltaic_rank *rank, double *values);

/* ---------------------------------------------------------------- methods */

typedef struct deltaic_prune_method {
  const char *name;  /* "drrqr" */
  const char *about; /* one line */
  bool text;         /* needs statistics */
  bool unit;         /* needs statistics of normalized keys and queries */
  bool rows;         /* can also use sampled activations */
  bool gradients;    /* of statistics it needs only gradients: deltaic_calibrate_gradients() */
} deltaic_prune_method;

/* Returns false beyond the last method. */
DELTAIC_PRUNE_API bool deltaic_prune_method_at(int32_t i, deltaic_prune_method *method);
DELTAIC_PRUNE_API bool deltaic_prune_method_find(const char *name, deltaic_prune_method *method);

/* ---------------------------------------------------------------- calibration */

typedef struct deltaic_statistics deltaic_statistics;

enum { DELTAIC_CALIBRATION_ROWS = 1 << 24 };

typedef struct deltaic_calibration_options {
  size_t size;
  uint32_t window;    /* tokens per window; each window starts from a zero state; 0: 512 */
  uint32_t rows;      /* activations sampled per head, in addition to the Gram matrices; 0: none.
                         At most DELTAIC_CALIBRATION_ROWS */
  bool rows_together; /* sample from queries and keys together, as the published code does; else half from each */
  bool unit;          /* measure normalized keys and queries too: for pca */
  uint64_t seed;      /* seed of the sample */
} deltaic_calibration_options;

/* path: the checkpoint's folder. Measures nothing yet. UNSUPPORTED for a model without delta-rule layers. */
DELTAIC_PRUNE_API deltaic_status deltaic_statistics_create(const char *path, const deltaic_calibration_options *options,
                                                           deltaic_statistics **out);
/* file: written by deltaic_statistics_save(). INVALID_ARGUMENT when it was measured on a model other than `path`. */
DELTAIC_PRUNE_API deltaic_status deltaic_statistics_load(const char *path, const char *file, deltaic_statistics **out);
/* An interrupted save leaves an existing file intact, as with deltaic_session_save_file(). */
DELTAIC_PRUNE_API deltaic_status deltaic_statistics_save(const deltaic_statistics *statistics, const char *file);
DELTAIC_PRUNE_API void deltaic_statistics_free(deltaic_statistics *statistics);

typedef struct deltaic_statistics_info {
  uint64_t tokens;                         /* measured so far */
  uint64_t hash;                           /* of these tokens */
  uint64_t gradient_tokens, gradient_hash; /* of the text whose gradients were measured; 0: none */
  uint32_t window, rows;
  bool unit, rows_together;
} deltaic_statistics_info;
DELTAIC_PRUNE_API void deltaic_statistics_get_info(const deltaic_statistics *statistics, deltaic_statistics_info *info);

/* Accumulates statistics over the text's tokens, window by window, from where the statistics stand. After the progress
 * function stopped it (DELTAIC_CANCELLED), the same call continues, also in another process, and gives the same bits.
 * model: opened from the checkpoint. progress: in tokens; may be NULL. */
DELTAIC_PRUNE_API deltaic_status deltaic_calibrate(deltaic_statistics *statistics, deltaic_model *model,
                                                   const int32_t *tokens, size_t count, deltaic_progress progress,
                                                   void *user);

/* Whether deltaic_calibrate() would accept this text: the statistics are empty, or what they measured is the beginning
 * of this text. */
DELTAIC_PRUNE_API bool deltaic_statistics_begun_with(const deltaic_statistics *statistics, const int32_t *tokens,
                                                     size_t count);

/* Measures the gradient of the loss by the projections of keys and queries, for the method grad. The loss is the sum
 * over the text's windows of each window's mean cross entropy; windows are those of the statistics. Computes in f32 on
 * the device; NULL: on the CPU, with all cores. path: the checkpoint that the statistics are of. Replaces what an
 * earlier call measured, unless the text is the same, which needs no work. Unlike deltaic_calibrate(), it begins anew
 * after it was stopped. progress: in tokens; may be NULL. */
DELTAIC_PRUNE_API deltaic_status deltaic_calibrate_gradients(deltaic_statistics *statistics, deltaic_device *device,
                                                             const char *path, const int32_t *tokens, size_t count,
                                                             deltaic_progress progress, void *user);

/* ---------------------------------------------------------------- selection */

typedef struct deltaic_selection deltaic_selection;

typedef enum deltaic_prune_side { DELTAIC_PRUNE_JOINT, DELTAIC_PRUNE_KEYS, DELTAIC_PRUNE_QUERIES } deltaic_prune_side;

/* How the number of kept channels is chosen: given, or as a rank of the head's activations, rounded up. */
typedef enum deltaic_keep_rule {
  DELTAIC_KEEP_GIVEN,   /* from `cut` or `keep` */
  DELTAIC_KEEP_ENTROPY, /* entropy rank */
  DELTAIC_KEEP_STABLE,  /* stable rank */
  DELTAIC_KEEP_RANK,    /* numerical rank */
  DELTAIC_KEEP_VOLUME   /* the fewest channels that lose at most `volume_lost` of the activations' length */
} deltaic_keep_rule;

typedef struct deltaic_select_options {
  size_t size;
  const char *method; /* NULL: drrqr */
  deltaic_prune_side side;
  /* Channels kept of d: max(1, floor(d (1 - cut))), for Head-in-Head rounded to a multiple of the blocks. */
  double cut;             /* share removed, 0 or more and below 1; used when keep_count is 0 */
  const uint32_t *keep;   /* channels kept: one number for all layers, or one for every delta-rule layer */
  size_t keep_count;      /* 0, 1, or the number of delta-rule layers */
  deltaic_keep_rule rule; /* the largest count that any head needs applies to all heads of the layer */
  bool per_layer;         /* let the count differ between layers; else the largest applies to all layers */
  double volume_lost;     /* 0 ... 1, with KEEP_VOLUME */
  uint64_t seed;          /* random */
  double tolerance;       /* drrqr: f >= 1; 0: 1.5 */
  uint32_t swap_limit;    /* drrqr: most swaps; 0: no limit (with like_reference: 20) */
  bool rows;              /* drrqr: use the sampled activations instead of Gram matrices */
  bool adversarial;       /* pca: keep the directions of least variance */
  bool like_reference;    /* follow the published code where it differs */
} deltaic_select_options;

/* statistics: may be NULL for methods that need no text; the selection then has no measures. */
DELTAIC_PRUNE_API deltaic_status deltaic_select(const char *path, const deltaic_statistics *statistics,
                                                const deltaic_select_options *options, deltaic_selection **out);
/* Makes a selection from channels that the caller has chosen. kept: for every head of every delta-rule layer in order,
 * `keep` channels in ascending order; count: the total number. name: recorded in place of a method. */
DELTAIC_PRUNE_API deltaic_status deltaic_select_given(const char *path, const deltaic_statistics *statistics,
                                                      const char *name, uint32_t keep, const int32_t *kept,
                                                      size_t count, deltaic_selection **out);
DELTAIC_PRUNE_API void deltaic_selection_free(deltaic_selection *selection);

/* Measures of the activations of a head's channels (of the side used for the selection, not normalized). */
typedef struct deltaic_head_measures {
  double condition;   /* largest singular value over the smallest */
  double utilization; /* stable rank over the number of channels */
  double log_volume;  /* ln of the product of the singular values; -infinity when channels are dependent */
} deltaic_head_measures;

typedef struct deltaic_selected_head {
  int32_t layer, head;
  int32_t size, keep;                  /* channels before and after */
  const int32_t *kept;                 /* ascending; NULL for a projection (pca). Valid as long as the selection */
  bool measured;                       /* statistics were available */
  deltaic_head_measures before, after; /* zeros when not measured */
  int32_t dead, rank;                  /* drrqr: channels that are always zero; independent channels found */
  int32_t swaps;                       /* drrqr */
  double rho;                          /* drrqr: the largest gain of a remaining swap */
  bool settled;                        /* drrqr: no remaining swap gains more than the tolerance */
} deltaic_selected_head;

DELTAIC_PRUNE_API size_t deltaic_selection_count(const deltaic_selection *selection); /* heads of all layers */
DELTAIC_PRUNE_API deltaic_status deltaic_selection_at(const deltaic_selection *selection, size_t i,
                                                      deltaic_selected_head *head);
/* drrqr: swap n of head i: the dropped channel, the taken channel, and the factor by which the volume grew. */
DELTAIC_PRUNE_API deltaic_status deltaic_selection_swap(const deltaic_selection *selection, size_t i, int32_t n,
                                                        int32_t *dropped, int32_t *taken, double *gain);

/* ---------------------------------------------------------------- the smaller checkpoint */

typedef struct deltaic_pruning deltaic_pruning;

/* Refit solves for a new o_proj in every pruned layer, in order. Ridge regression maps the pruned mixer's input to
 * o_proj to the unpruned model's residual stream after the mixer, minus the pruned model's residual stream before it.
 * Tokens are weighted by one over the RMS of the residual stream after the unpruned model's last mixer. */
typedef struct deltaic_refit_options {
  size_t size;
  double ridge;    /* lambda, in units of the mean diagonal of the Gram matrix (n, n); 0: n / tokens */
  uint32_t window; /* tokens per window; each window starts from a zero state; 0: 512 */
  uint64_t memory; /* most bytes of main memory for residual streams; 0: half of what is free */
} deltaic_refit_options;

typedef struct deltaic_prune_write_options {
  size_t size;
  bool force;                         /* replace an existing checkpoint */
  const deltaic_refit_options *refit; /* only recorded in the file, for a later deltaic_pruning_refit() */
  deltaic_progress progress;          /* bytes written */
  void *progress_user;
} deltaic_prune_write_options;

/* Checks, before long work, whether deltaic_pruning_begin() would accept these arguments. */
DELTAIC_PRUNE_API deltaic_status deltaic_pruning_check(const char *path, const char *out, bool force);

/* Writes the smaller checkpoint, with all other files of the folder, into a new folder beside `out`. `out` itself is
 * written only by deltaic_pruning_commit(). out: must not exist, unless `force` is set and it is a checkpoint. */
DELTAIC_PRUNE_API deltaic_status deltaic_pruning_begin(const char *path, const deltaic_selection *selection,
                                                       const char *out, const deltaic_prune_write_options *options,
                                                       deltaic_pruning **pruning);
/* The current folder, which can be opened as a checkpoint. Valid until commit or free. */
DELTAIC_PRUNE_API const char *deltaic_pruning_path(const deltaic_pruning *pruning);
/* device: runs the pruned model; model: the unpruned model, on any device. Needs memory for both models and for a Gram
 * matrix of (value heads * value size) squared float64. Main memory holds 2 * width + value heads * value size floats
 * for every token, and another width for each pruned layer; where these do not fit, the unpruned model reads the text
 * twice. progress: tokens of all readings. */
DELTAIC_PRUNE_API deltaic_status deltaic_pruning_refit(deltaic_pruning *pruning, deltaic_device *device,
                                                       deltaic_model *model, const int32_t *tokens, size_t count,
                                                       const deltaic_refit_options *options, deltaic_progress progress,
                                                       void *user);
/* Trains the pruned model on a text, with the unpruned one as its teacher: LoRA on the projections of queries, keys and
 * values (alpha is twice the rank), merged at the end; convolutions, norms and biases themselves. After a refit, if
 * there is one. The text is read once, in order, in windows that start from a zero state; what fills no whole step is
 * left out. */
typedef struct deltaic_recover_options {
  size_t size;
  uint32_t window;             /* tokens per window; 0: 512 */
  uint32_t batch;              /* windows per step; 0: 2 */
  uint32_t rank;               /* of the adapters; 0: 32 */
  uint32_t threads;            /* of the CPU, without a device; 0: all cores */
  double rate;                 /* the largest learning rate; 0: 1e-3 */
  uint64_t seed;               /* of the adapters' first values */
  deltaic_device *device;      /* computes; NULL: the CPU */
  deltaic_precision precision; /* as of deltaic_tune_options */
} deltaic_recover_options;
/* Until it returns OK, the checkpoint in the folder is what it was; after a failure to write it is not usable.
 * progress: in tokens; may be NULL. */
DELTAIC_PRUNE_API deltaic_status deltaic_pruning_recover(deltaic_pruning *pruning, const int32_t *tokens, size_t count,
                                                         const deltaic_recover_options *options,
                                                         deltaic_progress progress, void *user);
/* Renames the folder to `out`. */
DELTAIC_PRUNE_API deltaic_status deltaic_pruning_commit(deltaic_pruning *pruning);
/* Removes the folder if it was not committed. */
DELTAIC_PRUNE_API void deltaic_pruning_free(deltaic_pruning *pruning);

#ifdef __cplusplus
}
#endif
#endif
