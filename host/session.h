// session.h: one text in progress: state, activations, and the recordings that compute it.
#ifndef SESSION_H
#define SESSION_H
#include "model.h"

enum { LOGIT_ROWS = 64 }; // most rows of logits computed at once; 64 rows of any width start where a view may

struct deltaic_session {
  struct deltaic_model *model;
  struct state_shape shape;
  enum delta_form form;
  bool matrices; // DELTAIC_PRECISION_FAST

  struct arena state;       // tensors that outlive a call
  void **layers;            // L: each mixer's own state
  struct state_list *lists; // L
  struct tensor seen, last; // (1, ceil(V/32)) i32 tokens in the text; (1, V) logits after the last token

  struct arena scratch;           // tensors that do not
  struct tensor x, h, rows, draw; // (batch, D), (LOGIT_ROWS, D), (logit_rows, V), (1, V)
  struct tensor overlay;          // what layers take in turn
  uint32_t logit_rows;            // LOGIT_ROWS, or what one binding holds

  struct arena control;                      // written by the host between calls
  struct tensor sequences, tokens, sampling; // (1, 4) i32, (batch, 1) i32, (1, 8)

  struct recorder *prefill, *step, *next; // streamed; replayed for one token; replayed with its draw before it
  bool step_recorded, next_recorded;
  uint64_t position;
  bool has_logits; // `last` belongs to the position
  bool broken;     // a failure left the state undefined
  atomic_bool cancel;
  struct probe probe;
};

deltaic_status session_memory(const struct deltaic_model *m, const deltaic_session_options *options,
                              deltaic_memory *memory);
// Tells the device where the text is; called after every change of position by the host.
void session_place(struct deltaic_session *s, uint32_t T);
// The sum that a saved state must carry; `state` begins with its header. Only for tests that make states by hand.
void session_state_seal(void *state, size_t bytes);
deltaic_status session_check(const struct deltaic_session *s, const char *function); // BAD_STATE when broken
#endif
