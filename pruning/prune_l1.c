// l1: scores channel j by s_j = sum_i |W_q[j,i]| + |W_k[j,i]| over the rows of the projections. It needs no text.
#include "method.h"

static deltaic_status select_l1(const struct prune_head *head, int keep, const struct prune_options *options,
                                struct prune_result *out) {
  prune_weight_scores(head, options->side, NULL, out->scores);
  if (!matrix_finite(out->scores, head->d)) return fail(DELTAIC_INVALID_ARGUMENT, "a weight is not finite");
  prune_take_best(head, keep, out);
  return DELTAIC_OK;
}

const struct prune_method prune_l1 = {
    .name = "l1",
    .about = "largest weights: sum of |W_q| and |W_k| over a channel's rows",
    .needs = PRUNE_NEEDS_WEIGHTS,
    .select = select_l1,
};
