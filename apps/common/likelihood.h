// likelihood.h: log-likelihoods of a text's tokens, for every command that measures them.
#ifndef LIKELIHOOD_H
#define LIKELIHOOD_H
#include "deltaic.h"

// Reads texts in pieces and sums what it scores.
struct likelihood {
  size_t piece; // tokens evaluated at once
  int32_t *targets;
  deltaic_score *scores; // (piece)
  void *user;
  void (*scored)(void *user, size_t index, double nll); // each scored token; may be NULL
  bool (*read)(void *user, size_t tokens);              // after each piece; false stops; may be NULL
  double nll;                                           // sums since begin
  uint64_t predictions;
};
// batch: tokens given to the session at once, which slices them; 0: 2048.
void likelihood_begin(struct likelihood *l, size_t batch);
void likelihood_end(struct likelihood *l);
// Evaluates ids[0 ... n - 2] as the continuation of the session's text and scores ids[i], i = first ... n - 1, first at
// least 1. DELTAIC_CANCELLED when `read` says stop.
deltaic_status likelihood_read(struct likelihood *l, deltaic_session *session, const int32_t *ids, size_t n,
                               size_t first);
#endif
