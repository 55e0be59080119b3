// prune_grad: keeps the channels of the largest saliency: the sum over i of |W_q[j,i] dW_q[j,i]| + |W_k[j,i]
// dW_k[j,i]|, where dW is the gradient of the loss on a text ("The Key to State Reduction in Linear Attention", Grad).
#include "method.h"

static deltaic_status select_grad(const struct prune_head *head, int keep, const struct prune_options *options,
                                  struct prune_result *out) {
  for (int j = 0; j < head->d; j++)
    out->scores[j] = (options->side != PRUNE_KEYS ? head->q_saliency[j] : 0) +
                     (options->side != PRUNE_QUERIES ? head->k_saliency[j] : 0);
  if (!matrix_finite(out->scores, head->d)) return fail(DELTAIC_INVALID_ARGUMENT, "a gradient is not finite");
  prune_take_best(head, keep, out);
  return DELTAIC_OK;
}

const struct prune_method prune_grad = {
    .name = "grad",
    .about = "largest weights times their gradients of the loss",
    .needs = PRUNE_NEEDS_GRADIENTS,
    .select = select_grad,
};
