// statistics.h: holds what calibration has measured of every head of a model, and saves it to a small file.
#ifndef STATISTICS_H
#define STATISTICS_H
#include "method.h"
#include "source.h"

#include "deltaic_prune.h"

enum { STAT_Q, STAT_K, STAT_Q_UNIT, STAT_K_UNIT, STAT_GRAMS };

struct stat_layer {
  uint32_t layer;
  int H, d, steps;
  double *gram[STAT_GRAMS]; // (H, d, d) each; the unit ones NULL unless asked for
  double *sum[STAT_GRAMS];  // (H, d): of the unit ones only
  double *squares;          // (D) of the projections' inputs
  float *rows;              // (H, R, d) sampled activations, queries first; NULL: none
  int64_t *picks;           // (H, R) their numbers, ascending: queries 0 ... N-1, then N keys of every step
};

struct deltaic_statistics {
  uint64_t fingerprint; // of the model
  uint32_t D, window;
  bool unit;
  uint64_t rows, row_seed;   // R asked for; 0: none
  bool rows_together;        // R of queries and keys together, as the reference has it; else R/2 of each
  uint64_t total, done;      // tokens of the text (for the sample; 0: not known yet), tokens measured
  uint64_t hash;             // of the tokens measured
  bool broken;               // a failure amid a window
  struct stat_layer *layers; // as the source's
  int count;
};

deltaic_status statistics_create(const struct source *source, const deltaic_calibration_options *options,
                                 struct deltaic_statistics **out);
void statistics_free(struct deltaic_statistics *s);
// The sampled rows' room and numbers, once the length of the text is known; does nothing when there are already.
deltaic_status statistics_sample(struct deltaic_statistics *s, uint64_t total);
int statistics_rows(const struct deltaic_statistics *s, const struct stat_layer *l); // R of the layer
// What is known of a head, for a method.
void statistics_fill(const struct deltaic_statistics *s, int layer, int head, struct prune_head *out);
deltaic_status statistics_check(const struct deltaic_statistics *s, const struct source *source, const char *what);

deltaic_status statistics_save(const struct deltaic_statistics *s, const char *path);
deltaic_status statistics_load(const struct source *source, const char *path, struct deltaic_statistics **out);
#endif
