// method_scores: holds the functions shared by the methods that score channels.
#include "method.h"

#include <math.h>
#include <string.h>

void prune_take_best(const struct prune_head *head, int keep, struct prune_result *out) {
  int size = head->d / head->blocks;
  bool taken[MATRIX_MAX] = {false};
  int given[MATRIX_MAX] = {0}; // number of kept channels per block
  for (int n = 0; n < keep; n++) {
    int best = -1;
    for (int j = 0; j < head->d; j++)
      if (!taken[j] && given[j / size] < keep / head->blocks && (best < 0 || out->scores[j] > out->scores[best]))
        best = j;
    out->order[n] = best;
    taken[best] = true;
    given[best / size]++;
  }
}

static void add_rows(const float *w, int d, int hidden, const double *scale, double *scores) {
  for (int j = 0; j < d; j++)
    for (int i = 0; i < hidden; i++) scores[j] += fabs((double)w[(size_t)j * hidden + i]) * (scale ? scale[i] : 1);
}

void prune_weight_scores(const struct prune_head *head, enum prune_side side, const double *scale, double *scores) {
  memset(scores, 0, sizeof *scores * (size_t)head->d);
  if (side != PRUNE_KEYS) add_rows(head->wq, head->d, head->hidden, scale, scores);
  for (int m = 0; side != PRUNE_QUERIES && m < head->steps; m++)
    add_rows(head->wk[m], head->d, head->hidden, scale, scores);
}
