// hazard.h: proves from the recorded ranges that a barrier lies between any two dispatches that conflict. It shares no
// code with the placement of barriers in commands.c. Validation layers miss some hazards (accesses through device
// addresses and, before 1.4.36x, descriptors); this check covers every declared access.
#ifndef HAZARD_H
#define HAZARD_H
#include "buffer.h"

struct hazard_trace; // grows as commands are recorded

deltaic_status hazard_create(struct hazard_trace **out);
void hazard_free(struct hazard_trace *trace);
void hazard_clear(struct hazard_trace *trace);
void hazard_dispatch(struct hazard_trace *trace, const char *kernel);
void hazard_access(struct hazard_trace *trace, const struct buffer *buffer, uint64_t offset, uint64_t bytes, bool reads,
                   bool writes); // belongs to the latest dispatch
void hazard_barrier(struct hazard_trace *trace);

// Number of conflicting pairs without a barrier between; the first is named in text ("rmsnorm writes ... matvec_bf16
// reads ..."). Also counts accesses outside their buffer.
uint64_t hazard_check(const struct hazard_trace *trace, char *text, uint64_t capacity);
uint64_t hazard_barriers(const struct hazard_trace *trace);
#endif
