// backward_steps.h: goes over the steps of a recurrent state in reverse. A state cannot be computed backwards, since a
// step may be singular. About sqrt(steps) states are kept, and the steps between two of them are run again.
#ifndef BACKWARD_STEPS_H
#define BACKWARD_STEPS_H
#include "backward_cpu.h"

struct back_steps {
  uint64_t size;   // floats of a state
  uint32_t each;   // steps between two states that are kept
  uint64_t floats; // of memory: the state, those of a run, and those that are kept
};
struct back_steps back_steps_plan(uint64_t longest, uint64_t size); // longest: most steps of a sequence

// forward: the state, at the memory's begin, passes step s; kept receives what the step backwards needs of it, or is
// NULL. back: the step backwards, with that.
typedef void (*back_step)(void *head, uint32_t s, float *kept);
// start: the state before the steps, NULL: zeros.
void back_steps(const struct back_steps *b, float *memory, const float *start, uint32_t steps, void *head,
                back_step forward, back_step back);
#endif
