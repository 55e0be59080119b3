// delta_step_fours.h: contract of delta_step_fours.comp, which binds what delta_step.comp does, but no mask.
#ifndef DELTA_STEP_FOURS_H
#define DELTA_STEP_FOURS_H
#include "delta_step.h"
#define DELTA_STEP_FOURS_BINDINGS DELTA_STEP_MASK
#define DELTA_STEP_FOURS_SPEC_LANES 0 // a multiple of WIDTH
#define DELTA_STEP_FOURS_SPEC_DK 1
#define DELTA_STEP_FOURS_SPEC_DV 2
#define DELTA_STEP_FOURS_SPEC_WIDTH 3  // lanes that share columns: a power of two, at most a subgroup's
#define DELTA_STEP_FOURS_SPEC_GROUPS 4 // of four columns of theirs: a power of two, at most WIDTH
#define DELTA_STEP_FOURS_SPEC_NORM 5   // 1: the output is normed; a workgroup has all columns then
#define DELTA_STEP_FOURS_SPEC_ACTIVATION 6
#define DELTA_STEP_FOURS_SPEC_KEY_NORM 7
#define DELTA_STEP_FOURS_SPEC_LONE 8 // 1: one text, in row 0 and slot 0
#define DELTA_STEP_FOURS_SPECS 9
#endif
