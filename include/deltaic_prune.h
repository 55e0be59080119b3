/* deltaic_prune.h: make the states of a trained model smaller: fewer key channels in each head of its delta-rule layers
 * ("The Key to State Reduction in Linear Attention"). The conventions are those of deltaic.h. Not in a library that was
 * built without DELTAIC_PRUNER.
 *
 *   statistics   what calibration measures: a text's tokens are streamed through the model
 *   selection    which channels every head keeps, and how good they are
 *   pruning      a smaller checkpoint that is being made beside its final place: write, refit, try, then commit
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

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- methods */

typedef struct deltaic_prune_method {
  const char *name;  /* "drrqr" */
  const char *about; /* one line */
  bool text;         /* needs statistics */
  bool unit;         /* needs those of normalized keys and queries */
  bool rows;         /* can work from sampled activations as well */
} deltaic_prune_method;

/* false beyond the last one. */
DELTAIC_API bool deltaic_prune_method_at(int32_t i, deltaic_prune_method *method);
DELTAIC_API bool deltaic_prune_method_find(const char *name, deltaic_prune_method *method);

/* ---------------------------------------------------------------- calibration */

typedef struct deltaic_statistics deltaic_statistics;

enum { DELTAIC_CALIBRATION_ROWS = 1 << 24 };

typedef struct deltaic_calibration_options {
  size_t size;
  uint32_t window;    /* tokens read from a fresh state each; 0: 512 */
  uint32_t rows;      /* activations sampled of every head, for those who want more than Gram matrices; 0: none.
                         At most DELTAIC_CALIBRATION_ROWS */
  bool rows_together; /* sample them among queries and keys together, as the published code does; else half of each */
  bool unit;          /* measure normalized keys and queries too: for pca */
  uint64_t seed;      /* of the sample */
} deltaic_calibration_options;

/* path: the checkpoint's folder. Measures nothing yet. UNSUPPORTED for a model without delta-rule layers. */
DELTAIC_API deltaic_status deltaic_statistics_create(const char *path, const deltaic_calibration_options *options,
                                                     deltaic_statistics **out);
/* file: of deltaic_statistics_save(). INVALID_ARGUMENT when it was measured on another model than the one in `path`. */
DELTAIC_API deltaic_status deltaic_statistics_load(const char *path, const char *file, deltaic_statistics **out);
/* Writes as deltaic_session_save_file() does. */
DELTAIC_API deltaic_status deltaic_statistics_save(const deltaic_statistics *statistics, const char *file);
DELTAIC_API void deltaic_statistics_free(deltaic_statistics *statistics);

typedef struct deltaic_statistics_info {
  uint64_t tokens; /* measured so far */
  uint64_t hash;   /* of them */
  uint32_t window, rows;
  bool unit, rows_together;
} deltaic_statistics_info;
DELTAIC_API void deltaic_statistics_get_info(const deltaic_statistics *statistics, deltaic_statistics_info *info);

/* Adds up what the text's tokens show, window by window, from where the statistics stand: after an interruption (the
 * progress function's; DELTAIC_CANCELLED) the same call goes on, also in another process, and ends with the same bits.
 * model: the checkpoint's. progress: in tokens; may be NULL. */
DELTAIC_API deltaic_status deltaic_calibrate(deltaic_statistics *statistics, deltaic_model *model,
                                             const int32_t *tokens, size_t count, deltaic_progress progress,
                                             void *user);

/* ---------------------------------------------------------------- selection */

typedef struct deltaic_selection deltaic_selection;

typedef enum deltaic_prune_side { DELTAIC_PRUNE_JOINT, DELTAIC_PRUNE_KEYS, DELTAIC_PRUNE_QUERIES } deltaic_prune_side;

/* How many channels to keep when nobody says: as many as a rank of the head's activations, rounded up. */
typedef enum deltaic_keep_rule {
  DELTAIC_KEEP_GIVEN,   /* as `cut` or `keep` say */
  DELTAIC_KEEP_ENTROPY, /* entropy rank */
  DELTAIC_KEEP_STABLE,  /* stable rank */
  DELTAIC_KEEP_RANK,    /* numerical rank */
  DELTAIC_KEEP_VOLUME   /* as few as lose at most `volume_lost` of the activations' length */
} deltaic_keep_rule;

typedef struct deltaic_select_options {
  size_t size;
  const char *method; /* NULL: drrqr */
  deltaic_prune_side side;
  /* The target. Channels kept: max(1, floor(d (1 - cut))), Head-in-Head: a multiple of the blocks. */
  double cut;             /* share removed, 0 or more and below 1; used when keep_count is 0 */
  const uint32_t *keep;   /* channels kept: one number for all layers, or one for every delta-rule layer */
  size_t keep_count;      /* 0, 1, or the number of such layers */
  deltaic_keep_rule rule; /* the most that any head needs is kept in all heads of a layer ... */
  bool per_layer;         /* ... and, unless this is set, in all layers */
  double volume_lost;     /* 0 ... 1, with KEEP_VOLUME */
  uint64_t seed;          /* random */
  double tolerance;       /* drrqr: f >= 1; 0: 1.5 */
  uint32_t swap_limit;    /* drrqr; 0: none (with like_reference: 20) */
  bool rows;              /* drrqr: from the sampled activations instead of Gram matrices */
  bool adversarial;       /* pca: the directions of least variance */
  bool like_reference;    /* what the published code does where it differs */
} deltaic_select_options;

/* statistics: NULL for methods that need no text; the report of such a method then knows no measures. */
DELTAIC_API deltaic_status deltaic_select(const char *path, const deltaic_statistics *statistics,
                                          const deltaic_select_options *options, deltaic_selection **out);
/* Sets that somebody else has chosen. kept: for every delta-rule layer and every head of it, `keep` channels ascending,
 * one after the other; count: of all of them. name: stands for the method. */
DELTAIC_API deltaic_status deltaic_select_given(const char *path, const deltaic_statistics *statistics,
                                                const char *name, uint32_t keep, const int32_t *kept, size_t count,
                                                deltaic_selection **out);
DELTAIC_API void deltaic_selection_free(deltaic_selection *selection);

/* Of the activations of a head's channels (of the side that was selected by, not normalized). */
typedef struct deltaic_head_measures {
  double condition;   /* largest singular value over the smallest */
  double utilization; /* stable rank over the number of channels */
  double log_volume;  /* ln of the product of the singular values; -infinity when channels are dependent */
} deltaic_head_measures;

typedef struct deltaic_selected_head {
  int32_t layer, head;
  int32_t size, keep;                  /* channels before and after */
  const int32_t *kept;                 /* ascending; NULL for a projection (pca). Valid as long as the selection */
  bool measured;                       /* there are statistics */
  deltaic_head_measures before, after; /* zeros when not */
  int32_t dead, rank;                  /* drrqr: channels that are always zero; independent ones found */
  int32_t swaps;                       /* drrqr */
  double rho;                          /* drrqr: the largest gain that was left */
  bool settled;                        /* drrqr: no gain above the tolerance was left */
} deltaic_selected_head;

DELTAIC_API size_t deltaic_selection_count(const deltaic_selection *selection); /* heads of all layers */
DELTAIC_API deltaic_status deltaic_selection_at(const deltaic_selection *selection, size_t i,
                                                deltaic_selected_head *head);
/* drrqr: swap n of head i: a channel that left, one that came, and by what the volume was multiplied. */
DELTAIC_API deltaic_status deltaic_selection_swap(const deltaic_selection *selection, size_t i, int32_t n,
                                                  int32_t *dropped, int32_t *taken, double *gain);

/* ---------------------------------------------------------------- the smaller checkpoint */

typedef struct deltaic_pruning deltaic_pruning;

/* After pruning, o_proj of every pruned layer, in order, is solved for anew: ridge regression of the unpruned model's
 * residual stream after the mixer on what the pruned mixer hands to o_proj, given the pruned model's residual stream.
 * Tokens are weighted by one over the RMS of the residual stream after the unpruned model's last mixer. */
typedef struct deltaic_refit_options {
  size_t size;
  double ridge;    /* lambda, in units of the mean diagonal of the Gram matrix (n, n); 0: n / tokens */
  uint32_t window; /* tokens read from a fresh state each; 0: 512 */
} deltaic_refit_options;

typedef struct deltaic_prune_write_options {
  size_t size;
  bool force;                         /* replace a checkpoint that is there */
  const deltaic_refit_options *refit; /* only noted in the file, for those who will call deltaic_pruning_refit() */
  deltaic_progress progress;          /* bytes written */
  void *progress_user;
} deltaic_prune_write_options;

/* Whether deltaic_pruning_begin() would accept these; to be asked before long work. */
DELTAIC_API deltaic_status deltaic_pruning_check(const char *path, const char *out, bool force);

/* Writes the smaller checkpoint, with everything else that is in the folder, into a new folder beside `out`. Nothing is
 * at `out` before deltaic_pruning_commit(). out: must not be there, unless `force` is set and it is a checkpoint. */
DELTAIC_API deltaic_status deltaic_pruning_begin(const char *path, const deltaic_selection *selection, const char *out,
                                                 const deltaic_prune_write_options *options, deltaic_pruning **pruning);
/* The folder as it is now: a checkpoint to open. Valid until commit or free. */
DELTAIC_API const char *deltaic_pruning_path(const deltaic_pruning *pruning);
/* device: where the pruned model runs; model: the unpruned one, on any device. Needs memory for both, and a Gram matrix
 * of (value heads * value size) squared float64. progress: tokens of all passes. */
DELTAIC_API deltaic_status deltaic_pruning_refit(deltaic_pruning *pruning, deltaic_device *device, deltaic_model *model,
                                                 const int32_t *tokens, size_t count,
                                                 const deltaic_refit_options *options, deltaic_progress progress,
                                                 void *user);
/* Renames the folder to `out`. */
DELTAIC_API deltaic_status deltaic_pruning_commit(deltaic_pruning *pruning);
/* Removes what was not committed. */
DELTAIC_API void deltaic_pruning_free(deltaic_pruning *pruning);

#ifdef __cplusplus
}
#endif
#endif
