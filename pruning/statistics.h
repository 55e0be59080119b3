// statistics.h: declares the statistics of every head that calibration measures, and their file.
#ifndef STATISTICS_H
#define STATISTICS_H
#include "method.h"
#include "source.h"

#include "deltaic_prune.h"

enum { STAT_Q, STAT_K, STAT_Q_UNIT, STAT_K_UNIT, STAT_GRAMS };

struct stat_layer {
  uint32_t layer;
  int H, d, steps;
  double *gram[STAT_GRAMS]; // (H, d, d) each; the unit ones are NULL unless requested
  double *sum[STAT_GRAMS];  // (H, d); only for the unit ones
  double *saliency[2];      // STAT_Q, STAT_K: (H, d) sums of |weight times gradient|; NULL: not measured
  double *squares;          // (D) sums of squares of the projections' inputs
  float *rows;              // (H, R, d) sampled activations, queries first; NULL: none
  int64_t *picks;           // (H, R) row numbers, ascending: N queries, then N keys of every step
};

struct deltaic_statistics {
  uint64_t fingerprint; // of the model
  uint32_t D, window;
  bool unit;
  uint64_t rows, row_seed;   // requested number R of sampled rows; 0: none
  bool rows_together;        // samples R rows of queries and keys together, like the reference; otherwise R/2 of each
  uint64_t total, done;      // tokens of the text (for the sample; 0: not known yet), tokens measured
  uint64_t hash;             // hash of the measured tokens
  uint64_t gradient_tokens;  // of the text whose gradients were measured; 0: none
  uint64_t gradient_hash;    // of these tokens
  bool broken;               // a failure occurred inside a window
  struct stat_layer *layers; // in the order of the source's layers
  int count;
};

deltaic_status statistics_create(const struct source *source, const deltaic_calibration_options *options,
                                 struct deltaic_statistics **out);
void statistics_free(struct deltaic_statistics *s);
// Draws the sample and allocates its rows once the text's length is known. It does nothing if they exist already.
deltaic_status statistics_sample(struct deltaic_statistics *s, uint64_t total);
// Allocates every layer's saliency, or sets it to 0.
deltaic_status statistics_make_saliency(struct deltaic_statistics *s);
int statistics_rows(const struct deltaic_statistics *s, const struct stat_layer *l); // the layer's R
// Fills in the measurements of a head for a method.
void statistics_fill(const struct deltaic_statistics *s, int layer, int head, struct prune_head *out);
deltaic_status statistics_check(const struct deltaic_statistics *s, const struct source *source, const char *what);

deltaic_status statistics_save(const struct deltaic_statistics *s, const char *path);
deltaic_status statistics_load(const struct source *source, const char *path, struct deltaic_statistics **out);
#endif
