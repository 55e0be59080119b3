// matvec_dot.h: contract of matvec_dot.comp: bindings and push constants are matvec.h's. Variant: CONV is
// matvec_dot_conv_...
#ifndef MATVEC_DOT_H
#define MATVEC_DOT_H
#include "matvec.h"
#define MATVEC_DOT_BINDINGS MATVEC_BINDINGS
#define MATVEC_DOT_CONV_BINDINGS MATVEC_CONV_BINDINGS
#define MATVEC_DOT_SPEC_LANES 0
#define MATVEC_DOT_SPEC_K 1      // a multiple of 32
#define MATVEC_DOT_SPEC_TEAMS 2  // of equally many lanes, whole subgroups
#define MATVEC_DOT_SPEC_ROWS 3   // outputs of a team
#define MATVEC_DOT_SPEC_AHEAD 4  // rows of weights of which an invocation loads at once; divides those of a team
#define MATVEC_DOT_SPEC_NORM 5   // 1: x is normed
#define MATVEC_DOT_SPEC_GATED 6  // 1: y = act(gate) * up
#define MATVEC_DOT_SPEC_FORMAT 7 // weights.glsl
#define MATVEC_DOT_SPECS 8
#define MATVEC_DOT_CONV_SPEC_W 8    // taps
#define MATVEC_DOT_CONV_SPEC_LONE 9 // 1: one sequence, in row 0 and slot 0
#define MATVEC_DOT_CONV_SPECS 10
#endif
