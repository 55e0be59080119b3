// backward_steps: see backward_steps.h.
#include "backward_steps.h"

struct back_steps back_steps_plan(uint64_t longest, uint64_t size) {
  struct back_steps b = {.size = size, .each = 1};
  while ((uint64_t)b.each * b.each < longest) b.each++;
  b.floats = (1 + b.each + (longest + b.each - 1) / b.each) * size;
  return b;
}

void back_steps(const struct back_steps *b, float *memory, const float *start, uint32_t steps, void *head,
                back_step forward, back_step back) {
  const uint64_t size = b->size;
  float *S = memory, *run = S + size, *kept = run + b->each * size;
  for (uint64_t i = 0; i < size; i++) S[i] = start ? start[i] : 0;
  for (uint32_t s = 0; s < steps; s++) {
    if (s % b->each == 0) memcpy(kept + s / b->each * size, S, size * sizeof *S);
    forward(head, s, NULL);
  }
  for (uint32_t end = steps; end > 0;) {
    const uint32_t first = (end - 1) / b->each * b->each;
    memcpy(S, kept + first / b->each * size, size * sizeof *S);
    for (uint32_t s = first; s < end; s++) forward(head, s, run + (s - first) * size);
    for (; end > first; end--) back(head, end - 1, run + (end - 1 - first) * size);
  }
}
