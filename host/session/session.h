// session.h: texts in progress: their states, activations, and the recordings that compute them. Sequence i of the
// public API owns row i, its slot, of every tensor of the state.
#ifndef SESSION_H
#define SESSION_H
#include "model.h"
#include "probe.h"

enum {
  MOST_SEQUENCES = 256,
  LOGIT_ROWS = 64 // rows of logits computed at once when all are wanted; 64 rows of any width start where a view may
};

// One text: what the host knows of it.
struct slot {
  uint64_t position; // tokens evaluated
  bool has_logits;   // its row of `last` belongs to the position
  bool broken;       // a failure left its state undefined
};

// A recording that is replayed. There is one for every number of sequences that a call has had.
struct replay {
  struct recorder *recorder; // NULL: not needed yet; a session begins with those of one text
  bool recorded;
};

struct deltaic_session {
  struct deltaic_model *model;
  struct state_shape shape;
  enum delta_form form;
  struct slot *slots; // shape.sequences
  bool matrices;      // DELTAIC_PRECISION_FAST

  struct arena state;       // tensors that outlive a call
  void **layers;            // L: each mixer's own state
  struct state_list *lists; // L
  struct tensor seen, last; // (slots, ceil(V/32)) i32 tokens in the text; (slots, V) logits after the last token

  struct arena scratch;     // tensors that do not
  struct tensor x, h, rows; // (batch, D), (at least LOGIT_ROWS, D), (at least logit_rows, V)
  struct tensor overlay;    // what layers take in turn
  uint64_t overlay_bytes;
  struct tensor parts; // the recorders'
  uint32_t logit_rows; // LOGIT_ROWS, or what one binding holds

  struct arena control;                      // written by the host between calls
  struct tensor sequences, tokens, sampling; // (slots, 4) i32, (batch, 1) i32, (slots, 8)
  struct tensor scored, targets, scores;     // of rows with a target: (batch, 4), (batch, 1) i32, (batch, 2)

  struct oplist list;          // of the call that is being recorded
  struct recorder *prefill;    // streamed
  struct replay *steps, *next; // shape.sequences: entry n - 1 computes one token for n texts; with its draw before it
  bool profiled, watched;      // every kernel is timed; every submission
  atomic_bool cancel;
  struct probe probe;
};

// The sum that a saved state must carry; `state` begins with its header. Only for tests that make states by hand.
void session_state_seal(void *state, size_t bytes);
// INVALID_ARGUMENT for a session or sequence that is not there, BAD_STATE for one that is broken.
deltaic_status session_check(const struct deltaic_session *s, uint32_t sequence, const char *function);
// The recorders that exist: calls `visit` with each until one fails.
deltaic_status session_recorders(const struct deltaic_session *s,
                                 deltaic_status (*visit)(struct recorder *c, void *context), void *context);
#endif
