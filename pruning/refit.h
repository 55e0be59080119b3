// refit.h: after pruning, o_proj of every pruned layer is solved for anew, in closed form.
//
//   s (T)     one over the RMS of the unpruned model's residual stream after its last mixer, a weight for each token
//   X (T, n)  s times what the pruned mixer hands to o_proj
//   Y (T, D)  s times the unpruned model's residual stream after the mixer, less the pruned model's before it
//   W = W0 + argmin_V |X V^T - (Y - X W0^T)|^2 + lambda |V|^2
//     = W0 + ((G + lambda I)^-1 (B - G W0^T))^T,   G = X^T X,  B = X^T Y,  lambda = trace(G) / T
//
// in layer order, so that each layer also mends what the ones before it left. Only G and B are kept, in float64.
#ifndef REFIT_H
#define REFIT_H
#include "product.h"

// See deltaic_pruning_refit().
deltaic_status refit(struct deltaic_pruning *p, deltaic_device *device, deltaic_model *model, const int32_t *tokens,
                     uint64_t count, const deltaic_refit_options *options, deltaic_progress progress, void *user);
#endif
