// likelihood.h: declares the computation of the log-likelihoods of a sequence's tokens.
#ifndef LIKELIHOOD_H
#define LIKELIHOOD_H
#include "deltaic.h"

// Evaluates a sequence in pieces and sums the scores.
struct likelihood {
  size_t piece; // number of tokens evaluated at once
  int32_t *targets;
  deltaic_score *scores; // (piece)
  void *user;
  void (*scored)(void *user, size_t index, double nll); // called for each scored token; may be NULL
  bool (*read)(void *user, size_t tokens);              // called after each piece; returning false stops; may be NULL
  double nll;                                           // sum since likelihood_begin()
  uint64_t predictions;
};
// batch: number of tokens passed to the session at once, which divides them further; 0: 2048.
void likelihood_begin(struct likelihood *l, size_t batch);
void likelihood_end(struct likelihood *l);
// Evaluates ids[0 ... n - 2] as the continuation of the session's sequence and scores ids[i], i = first ... n - 1,
// where first >= 1. It returns DELTAIC_CANCELLED if `read` stops it.
deltaic_status likelihood_read(struct likelihood *l, deltaic_session *session, const int32_t *ids, size_t n,
                               size_t first);
#endif
