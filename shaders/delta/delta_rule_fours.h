// delta_rule_fours.h: contract of delta_rule_fours.comp. Its push constants are those of delta_rule.comp.
#ifndef DELTA_RULE_FOURS_H
#define DELTA_RULE_FOURS_H
#include "delta_rule.h"
#define DELTA_RULE_FOURS_O 0         // (T, Hv * Dv) out, f32
#define DELTA_RULE_FOURS_QKV 1       // (T, H * DK + N * H * DK + N * Hv * DV) in, f32: q, k of each step, v of each step
#define DELTA_RULE_FOURS_BETA 2      // (T, N * Hv) in, f32
#define DELTA_RULE_FOURS_G 3         // (T, Hv) in, f32; read when args.gated
#define DELTA_RULE_FOURS_STATE 4     // (slots, Hv * DK * DV) inout, f32
#define DELTA_RULE_FOURS_SEQUENCES 5 // (B) in, struct sequence
#define DELTA_RULE_FOURS_BINDINGS 6
#define DELTA_RULE_FOURS_SPEC_LANES 0 // a multiple of WIDTH, at least BLOCK * N
#define DELTA_RULE_FOURS_SPEC_DK 1    // DK, DV and strides: multiples of 4
#define DELTA_RULE_FOURS_SPEC_DV 2
#define DELTA_RULE_FOURS_SPEC_N 3      // householder steps per token
#define DELTA_RULE_FOURS_SPEC_WIDTH 4  // lanes that share columns: a power of two, at most a subgroup's
#define DELTA_RULE_FOURS_SPEC_GROUPS 5 // groups of four columns of these lanes: a power of two, at most WIDTH / 4
#define DELTA_RULE_FOURS_SPEC_BLOCK 6  // tokens staged at once
#define DELTA_RULE_FOURS_SPEC_AHEAD 7  // 1: the next block is loaded while this one is computed
#define DELTA_RULE_FOURS_SPECS 8
#endif
