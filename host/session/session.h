// session.h: a session: its sequences with their states, the activations, and the recordings that compute them.
// Sequence i of the public API owns slot i: row i of every tensor of the state.
#ifndef SESSION_H
#define SESSION_H
#include "model.h"
#include "pace.h"
#include "probe.h"

enum {
  MOST_SEQUENCES = 256,
  LOGIT_ROWS = 64 // rows of logits that are computed at once if a caller wants all; a view may begin after 64 rows of
                  // any width
};

// What the host knows about one sequence.
struct slot {
  uint64_t position; // number of evaluated tokens
  bool has_logits;   // its row of `last` has the logits at this position
  bool broken;       // its state is undefined after a failure, or not wholly loaded
  uint64_t loaded;   // bytes so far of a state that is loaded range by range; 0: none is
};

// A recording that is replayed, one for each number of sequences that a call has had.
struct replay {
  struct recorder *recorder; // NULL: not needed yet; a new session has only those of one sequence
  bool recorded;
};

struct deltaic_session {
  struct deltaic_model *model;
  struct state_shape shape;
  enum delta_form form;
  struct slot *slots; // (shape.sequences)
  bool matrices;      // DELTAIC_PRECISION_FAST

  struct arena state;       // tensors that keep their contents between calls
  void **layers;            // L: each mixer's own state
  struct state_list *lists; // L
  struct tensor seen, last; // (slots, ceil(V/32)) i32: bits of seen tokens; (slots, V): logits after the last token

  struct arena scratch;     // tensors that do not
  struct tensor x, h, rows; // (batch, D), (at least LOGIT_ROWS, D), (at least logit_rows, V)
  struct tensor overlay;    // scratch that the layers use in turn
  uint64_t overlay_bytes;
  struct tensor parts; // oplist.parts
  uint32_t logit_rows; // LOGIT_ROWS, or fewer if one binding cannot hold them

  struct arena control;                      // written by the host between calls
  struct tensor sequences, tokens, sampling; // (slots, 4) i32, (batch, 1) i32, (slots, 8)
  struct tensor scored, targets, scores;     // of rows with a target: (batch, 4), (batch, 1) i32, (batch, 2)

  struct oplist list;          // the list that is being recorded
  struct recorder *prefill;    // submitted in parts
  struct replay *steps, *next; // (shape.sequences): entry n - 1 computes one token of n sequences; `next` also draws it
  bool profiled, watched;      // every kernel is timed; every submission is timed
  atomic_bool cancel;
  struct probe probe;
  struct pace pace; // of the calls that are given a time
};

// INVALID_ARGUMENT: no such session or sequence. BAD_STATE: the sequence is broken.
deltaic_status session_check(const struct deltaic_session *s, uint32_t sequence, const char *function);
// The checks of deltaic_session_eval().
deltaic_status session_check_piece(const struct deltaic_session *s, const deltaic_piece *p, const char *function);
// Whether all tokens are in the vocabulary.
deltaic_status session_check_tokens(const struct deltaic_session *s, const int32_t *tokens, size_t n);
// Calls `visit` with each existing recorder until one call fails.
deltaic_status session_recorders(const struct deltaic_session *s,
                                 deltaic_status (*visit)(struct recorder *c, void *context), void *context);
#endif
