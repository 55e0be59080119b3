// likelihood: scores the tokens of a session's only sequence on the device and sums the results in double.
#include "likelihood.h"
#include "common.h" // must_resize

#include <stdlib.h>

void likelihood_begin(struct likelihood *l, size_t batch) {
  *l = (struct likelihood){.piece = batch ? batch : 2048};
  l->targets = must_resize(NULL, l->piece * sizeof *l->targets);
  l->scores = must_resize(NULL, l->piece * sizeof *l->scores);
}

void likelihood_end(struct likelihood *l) {
  free(l->targets);
  free(l->scores);
  l->targets = NULL;
  l->scores = NULL;
}

static void add_scores(struct likelihood *l, size_t at, size_t count) {
  for (size_t t = 0; t < count; ++t) {
    if (l->targets[t] < 0) continue;
    double nll = -(double)l->scores[t].log_probability;
    l->nll += nll;
    ++l->predictions;
    if (l->scored) l->scored(l->user, at + t + 1, nll);
  }
}

deltaic_status likelihood_read(struct likelihood *l, deltaic_session *session, const int32_t *ids, size_t n,
                               size_t first) {
  deltaic_status status = DELTAIC_OK;
  for (size_t at = 0, count; at + 1 < n && !status; at += count) {
    count = n - 1 - at < l->piece ? n - 1 - at : l->piece;
    for (size_t t = 0; t < count; ++t) l->targets[t] = at + t + 1 < first ? -1 : ids[at + t + 1];
    deltaic_piece piece = {.tokens = ids + at, .count = count, .targets = l->targets, .scores = l->scores};
    status = deltaic_session_eval_batch(session, &piece, 1);
    if (status) break;
    add_scores(l, at, count);
    if (l->read && !l->read(l->user, count)) status = DELTAIC_CANCELLED;
  }
  return status;
}
