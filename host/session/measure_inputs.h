// measure_inputs.h: an operator that is measured (measure_operator.c), and its tensors.
#ifndef MEASURE_INPUTS_H
#define MEASURE_INPUTS_H
#include "arena.h"
#include "measure.h"

enum { OPERATOR_STATES = 8 };

struct operator_run {
  struct backend *b;
  struct recorder *c;
  bool awake;   // as of the device
  double began; // when
  deltaic_operator o;
  uint32_t random;
  uint32_t cols, padded; // of qkv, in float32 and as the operator gets it: keys of f16 have padding
  uint32_t turns;        // of the operator, or of all states, in a recording
  uint32_t count;        // operators of a recording, each waiting for the one before it
  bool narrow;           // q, k, v and o are f16
  struct oplist list;
  struct arena arena;
  struct tensor qkv, beta, g, mask, state, sequences, out;                    // of all sequences
  struct tensor wide, state_wide, out_wide, sequence_wide, beta_wide, g_wide; // of one, f32: the reference
  struct tensor mask_wide;
  // Of single tokens, as a layer has them: what beta and g are made of, and further states, so that a
  // state comes out of memory and not out of a cache.
  struct tensor ba, none, states[OPERATOR_STATES];
};

static inline bool operator_is_step(const struct operator_run *m) {
  return m->o.tokens == 1 && m->o.rule == DELTAIC_RULE_RECURRENT;
}

// Writes random inputs: every sequence has the same text.
deltaic_status operator_inputs(struct operator_run *m);
#endif
