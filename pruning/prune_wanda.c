// s-wanda: scores s_j = sum_i (|W_q[j,i]| + |W_k[j,i]|) |X_:i|, where X is the projections' inputs over the calibration
// text. The published code uses the root of the mean square instead of the norm, which gives the same order.
#include "method.h"

#include <math.h>
#include <stdlib.h>

static deltaic_status select_wanda(const struct prune_head *head, int keep, const struct prune_options *options,
                                   struct prune_result *out) {
  double *norm;
  deltaic_status status = matrix_create(head->hidden, 1, "norms of the inputs", &norm);
  if (status) return status;
  for (int i = 0; i < head->hidden; i++) norm[i] = sqrt(head->input_squares[i]);
  prune_weight_scores(head, options->side, norm, out->scores);
  free(norm);
  if (!matrix_finite(out->scores, head->d)) return fail(DELTAIC_INVALID_ARGUMENT, "a weight or input is not finite");
  prune_take_best(head, keep, out);
  return DELTAIC_OK;
}

const struct prune_method prune_wanda = {
    .name = "s-wanda",
    .about = "largest weights times the size of what they multiply",
    .needs = PRUNE_NEEDS_WEIGHTS | PRUNE_NEEDS_INPUTS,
    .select = select_wanda,
};
