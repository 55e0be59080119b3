// matvec_dot.h: contract of matvec_dot.comp: bindings and push constants are matvec_conv's. What a product without a
// convolution or bias binds there is not used.
#ifndef MATVEC_DOT_H
#define MATVEC_DOT_H
#include "matvec.h"
#define MATVEC_DOT_BINDINGS MATVEC_CONV_BINDINGS
#define MATVEC_DOT_IDS MATVEC_BIAS // with EXPERTS: (T / k, k) in, i32: the experts of the rows of y
#define MATVEC_DOT_SPEC_LANES 0
#define MATVEC_DOT_SPEC_K 1     // a multiple of 32
#define MATVEC_DOT_SPEC_TEAMS 2 // of equally many lanes, whole subgroups
#define MATVEC_DOT_SPEC_ROWS 3  // outputs of a team
#define MATVEC_DOT_SPEC_AHEAD 4 // rows of weights loaded at once: 2^n
#define MATVEC_DOT_SPEC_NORM 5    // 1: x is normed
#define MATVEC_DOT_SPEC_GATED 6   // 1: y = act(gate) * up
#define MATVEC_DOT_SPEC_FORMAT 7  // weights.glsl
#define MATVEC_DOT_SPEC_WIDTH 8   // lanes of a subgroup
#define MATVEC_DOT_SPEC_EXPERTS 9 // 1: weights are rows of experts
#define MATVEC_DOT_SPEC_CONV_W 10 // taps of a convolution behind the product; 0: there is none
#define MATVEC_DOT_SPEC_LONE 11   // 1: one sequence, in row 0 and slot 0
#define MATVEC_DOT_SPEC_ACTIVATION 12 // of gate
#define MATVEC_DOT_SPECS 13
#endif
