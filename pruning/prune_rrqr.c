// drrqr: keeps the channels whose activations have the largest volume, by strong rank-revealing QR (rrqr.h) of the
// stacked queries and keys. It does pivoted QR, then swaps channels while a swap multiplies the volume by more than f.
#include "method.h"
#include "rrqr.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_TOLERANCE 1.5
#define REFERENCE_SWAPS 20
#define REFERENCE_SINGULAR 1e-9
// With f = 1 a rounding error must not count as a gain. The margin also prevents cycles of swaps due to rounding.
#define ROUNDING 1e-9
#define SWAPS_PER_CHANNEL 100

static deltaic_status factor_gram(const struct prune_head *h, int keep, enum prune_side side, struct rrqr *s) {
  double *gram;
  deltaic_status status = matrix_create(h->d, h->d, "a Gram matrix", &gram);
  if (status) return status;
  if (side != PRUNE_KEYS) cblas_daxpy(h->d * h->d, 1.0, h->q.gram, 1, gram, 1);
  if (side != PRUNE_QUERIES) cblas_daxpy(h->d * h->d, 1.0, h->k.gram, 1, gram, 1);
  status = rrqr_from_gram(s, gram, h->d, keep, h->blocks);
  free(gram);
  return status;
}

static deltaic_status factor_rows(const struct prune_head *h, int keep, enum prune_side side, struct rrqr *s) {
  struct matrix_rows parts[2];
  int count = 0;
  if (side != PRUNE_KEYS) parts[count++] = h->q_rows;
  if (side != PRUNE_QUERIES) parts[count++] = h->k_rows;
  return rrqr_from_rows(s, parts, count, h->d, keep, h->blocks);
}

static deltaic_status record_swap(struct prune_result *out, struct prune_swap swap) {
  int n = out->swap_count;
  if ((n & (n - 1)) == 0) { // double the capacity
    size_t bytes = sizeof swap * (n ? 2 * (size_t)n : 1);
    struct prune_swap *more = realloc(out->swaps, bytes);
    if (!more) return fail_memory("the list of swaps", bytes);
    out->swaps = more;
  }
  out->swaps[out->swap_count++] = swap;
  return DELTAIC_OK;
}

static bool reference_stops(const struct rrqr *s) {
  for (int i = 0; i < s->k; i++)
    if (fabs(s->r[i + (size_t)i * s->n]) < REFERENCE_SINGULAR) return true;
  return false;
}

// Swaps until the updated values of rho allow no more, then recomputes them from R and repeats. So rho <= f holds for
// the matrix and not only for the updated values.
static deltaic_status swap_all(struct rrqr *s, const struct prune_options *o, struct prune_result *out) {
  double f = o->tolerance != 0 ? o->tolerance : DEFAULT_TOLERANCE;
  int limit = o->swap_limit ? o->swap_limit : o->like_reference ? REFERENCE_SWAPS : SWAPS_PER_CHANNEL * s->n;
  bool fresh = true;
  for (;;) {
    int i, j;
    out->rho = rrqr_worst(s, &i, &j);
    out->settled = out->rho <= f * (1 + ROUNDING);
    if (out->settled && fresh) return DELTAIC_OK;
    if (out->settled) {
      fresh = true;
      deltaic_status status = rrqr_measure(s);
      if (status) return status;
      continue;
    }
    if (out->swap_count == limit || (o->like_reference && reference_stops(s))) return DELTAIC_OK;
    deltaic_status status = record_swap(out, (struct prune_swap){s->order[i], s->order[s->k + j], out->rho});
    if (status) return status;
    rrqr_swap(s, i, j);
    fresh = false;
  }
}

static deltaic_status select_rrqr(const struct prune_head *head, int keep, const struct prune_options *options,
                                  struct prune_result *out) {
  struct rrqr s = {0};
  deltaic_status status = options->route == PRUNE_ROWS ? factor_rows(head, keep, options->side, &s)
                                                       : factor_gram(head, keep, options->side, &s);
  if (!status) status = swap_all(&s, options, out);
  if (!status) {
    memcpy(out->order, s.order, sizeof *out->order * (size_t)keep);
    out->rank = s.rank;
    out->dead = s.dead;
    out->log_volume = rrqr_log_volume(&s);
    free(out->scores);
    out->scores = NULL;
  }
  rrqr_free(&s);
  return status;
}

const struct prune_method prune_rrqr = {
    .name = "drrqr",
    .about = "best conditioned channels: strong rank-revealing QR of the activations",
    .needs = PRUNE_NEEDS_ACTIVATIONS,
    .select = select_rrqr,
};
