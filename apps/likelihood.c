// likelihood: the one place where logits become log-likelihoods.
#include "likelihood.h"
#include "common.h" // must_resize

#include <math.h>
#include <stdlib.h>

enum { LOGITS_MOST = 16 << 20 }; // floats: 64 MiB

double token_nll(const float *logits, int32_t vocabulary, int32_t token, int32_t *likeliest) {
  double sum = 0;
  int32_t best = 0;
  for (int32_t v = 1; v < vocabulary; ++v)
    if (logits[v] > logits[best]) best = v;
  double most = logits[best];
  for (int32_t v = 0; v < vocabulary; ++v) sum += exp(logits[v] - most);
  if (likeliest) *likeliest = best;
  return most + log(sum) - logits[token];
}

void likelihood_begin(struct likelihood *l, int32_t vocabulary, size_t batch) {
  size_t most = (size_t)LOGITS_MOST / (size_t)vocabulary;
  *l = (struct likelihood){.vocabulary = vocabulary, .piece = batch ? batch : 512};
  if (l->piece > most) l->piece = most ? most : 1;
  l->logits = must_resize(NULL, l->piece * (size_t)vocabulary * sizeof *l->logits);
}

void likelihood_end(struct likelihood *l) {
  free(l->logits);
  l->logits = NULL;
}

static void score_rows(struct likelihood *l, const int32_t *ids, size_t at, size_t n, size_t first) {
  for (size_t t = 0; t < n; ++t) {
    size_t target = at + t + 1;
    int32_t best;
    if (target < first) continue;
    double nll = token_nll(l->logits + t * (size_t)l->vocabulary, l->vocabulary, ids[target], &best);
    l->nll += nll;
    ++l->predictions;
    if (l->scored) l->scored(l->user, target, nll, best == ids[target]);
  }
}

deltaic_status likelihood_read(struct likelihood *l, deltaic_session *session, const int32_t *ids, size_t n,
                               size_t first) {
  deltaic_status status = DELTAIC_OK;
  for (size_t at = 0, count; at + 1 < n && !status; at += count) {
    count = n - 1 - at < l->piece ? n - 1 - at : l->piece;
    bool unscored = at + count < first; // the rows before the first score need no logits
    status = deltaic_session_eval(session, ids + at, count, unscored ? DELTAIC_LOGITS_NONE : DELTAIC_LOGITS_ALL,
                                  unscored ? NULL : l->logits);
    if (status) break;
    if (!unscored) score_rows(l, ids, at, count, first);
    if (l->read && !l->read(l->user, count)) status = DELTAIC_CANCELLED;
  }
  return status;
}
