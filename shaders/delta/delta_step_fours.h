// delta_step_fours.h: contract of delta_step_fours.comp, with the bindings of delta_step.comp except the mask.
#ifndef DELTA_STEP_FOURS_H
#define DELTA_STEP_FOURS_H
#include "delta_step.h"
#define DELTA_STEP_FOURS_BINDINGS DELTA_STEP_MASK
#define DELTA_STEP_FOURS_SPEC_LANES 0 // a multiple of WIDTH
#define DELTA_STEP_FOURS_SPEC_DK 1
#define DELTA_STEP_FOURS_SPEC_DV 2
#define DELTA_STEP_FOURS_SPEC_WIDTH 3  // lanes that share columns: a power of two, at most a subgroup's
#define DELTA_STEP_FOURS_SPEC_GROUPS 4 // groups of four columns of these lanes: a power of two, at most WIDTH
#define DELTA_STEP_FOURS_SPEC_NORM 5   // 1: the output is normed; then a workgroup has all columns
#define DELTA_STEP_FOURS_SPEC_ACTIVATION 6
#define DELTA_STEP_FOURS_SPEC_KEY_NORM 7
#define DELTA_STEP_FOURS_SPEC_LONE 8 // 1: one sequence, in row 0 and slot 0
#define DELTA_STEP_FOURS_SPECS 9
#endif
