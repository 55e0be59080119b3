// slice.h: what one call of the device computes: a slice of a prompt, in which texts lie side by side, or one token of
// each text. evaluate.c says what is to be computed and has checked it.
#ifndef SLICE_H
#define SLICE_H
#include "session.h"

// Rows of a slice that continue one piece.
struct part {
  uint32_t piece, row, T;
};

struct work {
  const deltaic_piece *pieces;
  size_t n;
  size_t done[MOST_SEQUENCES]; // tokens of each piece that are evaluated
  struct part parts[MOST_SEQUENCES];
  uint32_t count, ends; // parts of the slice; after the first `ends` of them their pieces are done
  uint32_t T;           // rows of the slice
};

// Evaluates as many of the tokens that are left, of which there must be some, as a slice holds, and hands out the
// logits and scores that their pieces ask for. `done` and the texts' positions are the caller's to move.
deltaic_status slice_run(struct deltaic_session *s, struct work *w);
// One token of each of n texts, whose rows s->sequences has: the one in `tokens`, or one drawn from `last`.
deltaic_status slice_replay(struct deltaic_session *s, uint32_t n, bool draw);
// Where the logits after the last tokens of the call's first n texts are, side by side, until the next call.
struct tensor slice_logits(const struct deltaic_session *s, uint32_t n);
deltaic_status slice_read(struct deltaic_session *s, struct tensor t, uint64_t row, uint64_t rows, float *out);
#endif
