// slice.h: computes a slice, the rows that the device computes at once: tokens of several sequences, or one token of
// each. evaluate.c decides what to compute and has checked the arguments.
#ifndef SLICE_H
#define SLICE_H
#include "session.h"

// The rows of a slice that belong to one piece (deltaic_piece).
struct piece_rows {
  uint32_t piece, row, T;
};

struct work {
  const deltaic_piece *pieces;
  size_t n;
  size_t done[MOST_SEQUENCES]; // evaluated tokens of each piece
  struct piece_rows parts[MOST_SEQUENCES];
  uint32_t count, ends; // parts of the slice; the first `ends` of them complete their pieces
  uint32_t T;           // rows of the slice
  bool step;            // the slice replays a recording; a cancel of it has run nothing
};

// Evaluates as many of the remaining tokens (at least one) as a slice holds, and writes the logits and scores that
// their pieces want. The caller advances `done` and the sequences' positions.
deltaic_status slice_run(struct deltaic_session *s, struct work *w);
// Evaluates one token of each of the n sequences in s->sequences: the one in `tokens`, or one drawn from `last`.
deltaic_status slice_replay(struct deltaic_session *s, uint32_t n, bool draw);

// These fill the session's list: one token of each of n sequences, as slice_replay() computes it.
void slice_list_step(struct deltaic_session *s, uint32_t n, bool draw);
// T tokens of `count` sequences, at most `longest` of one; logits after the last tokens of the first `ends` sequences,
// and the scores of `targets` rows. probes: kinds of deltaic_probe_kind that the list has operations for.
struct slice_shape {
  uint32_t T, count, longest, ends, targets, probes;
};
void slice_list_prompt(struct deltaic_session *s, const struct slice_shape *p);
// The logits of rows t ... t + n - 1, of `rows`. *normed: the first row of the 64 whose norms are there, or UINT32_MAX.
void slice_list_logits(struct deltaic_session *s, uint32_t rows, uint32_t t, uint32_t n, uint32_t *normed);

// The logits after the last tokens of the call's first n sequences, as adjacent rows; valid until the next call.
struct tensor slice_logits(const struct deltaic_session *s, uint32_t n);
deltaic_status slice_read(struct deltaic_session *s, struct tensor t, uint64_t row, uint64_t rows, float *out);
#endif
