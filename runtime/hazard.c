// hazard: checks that every pair of conflicting accesses has a barrier between them. It is independent of commands.c:
// it keeps the whole trace and compares every dispatch with every dispatch since the last barrier.
#include "hazard.h"

#include "list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct access {
  uint32_t dispatch;
  uint64_t epoch; // barriers recorded before it
  const struct buffer *buffer;
  VkBuffer vk; // two descriptions of one VkBuffer are the same memory
  uint64_t begin, end, buffer_bytes;
  bool reads, writes;
};

struct hazard_trace {
  struct access *access;
  size_t count, capacity;
  const char **kernel; // by dispatch; names are the shaders' and outlive the trace
  size_t dispatches, kernel_capacity;
  uint64_t barriers;
  bool incomplete; // memory ran out: the trace proves nothing
};

deltaic_status hazard_create(struct hazard_trace **out) {
  *out = calloc(1, sizeof **out);
  return *out ? DELTAIC_OK : fail_memory("the hazard trace", sizeof **out);
}

void hazard_free(struct hazard_trace *trace) {
  if (!trace) return;
  free(trace->access);
  free(trace->kernel);
  free(trace);
}

void hazard_clear(struct hazard_trace *trace) {
  trace->count = trace->dispatches = trace->barriers = 0;
  trace->incomplete = false;
}

static bool grow(struct hazard_trace *trace, void *array, size_t count, size_t *capacity, size_t size) {
  bool grown = list_room(array, count, capacity, size, "the hazard trace") == DELTAIC_OK;
  trace->incomplete |= !grown;
  return grown;
}

void hazard_dispatch(struct hazard_trace *trace, const char *kernel) {
  if (!grow(trace, &trace->kernel, trace->dispatches, &trace->kernel_capacity, sizeof *trace->kernel)) return;
  trace->kernel[trace->dispatches++] = kernel;
}

void hazard_access(struct hazard_trace *trace, const struct buffer *buffer, uint64_t offset, uint64_t bytes, bool reads,
                   bool writes) {
  if (!trace->dispatches || !grow(trace, &trace->access, trace->count, &trace->capacity, sizeof *trace->access)) return;
  uint64_t end;
  if (!size_add(offset, bytes, &end)) end = UINT64_MAX;
  trace->access[trace->count++] = (struct access){.dispatch = (uint32_t)(trace->dispatches - 1),
                                                  .epoch = trace->barriers,
                                                  .buffer = buffer,
                                                  .vk = buffer->vk,
                                                  .begin = offset,
                                                  .end = end,
                                                  .buffer_bytes = buffer->bytes,
                                                  .reads = reads,
                                                  .writes = writes};
}

void hazard_barrier(struct hazard_trace *trace) { trace->barriers++; }

uint64_t hazard_barriers(const struct hazard_trace *trace) { return trace->barriers; }

static bool conflict(const struct access *a, const struct access *b) {
  bool same = a->buffer == b->buffer || (a->vk != VK_NULL_HANDLE && a->vk == b->vk);
  bool overlap = a->begin < b->end && b->begin < a->end;
  return same && overlap && (a->writes || b->writes) && a->dispatch != b->dispatch;
}

static const char *verb(const struct access *a) {
  return a->reads && a->writes ? "reads and writes" : a->writes ? "writes" : "reads";
}

static void tell_conflict(const struct hazard_trace *trace, const struct access *a, const struct access *b, char *text,
                          uint64_t capacity) {
  snprintf(text, capacity,
           "%s (dispatch %u) %s bytes %llu to %llu and %s (dispatch %u) %s bytes %llu to %llu of the same buffer "
           "without a barrier between",
           trace->kernel[a->dispatch], a->dispatch, verb(a), (unsigned long long)a->begin, (unsigned long long)a->end,
           trace->kernel[b->dispatch], b->dispatch, verb(b), (unsigned long long)b->begin, (unsigned long long)b->end);
}

static void tell_outside(const struct hazard_trace *trace, const struct access *a, char *text, uint64_t capacity) {
  snprintf(text, capacity, "%s (dispatch %u) %s bytes %llu to %llu of a buffer of %llu", trace->kernel[a->dispatch],
           a->dispatch, verb(a), (unsigned long long)a->begin, (unsigned long long)a->end,
           (unsigned long long)a->buffer_bytes);
}

uint64_t hazard_check(const struct hazard_trace *trace, char *text, uint64_t capacity) {
  uint64_t found = 0;
  if (capacity) text[0] = 0;
  if (trace->incomplete) {
    snprintf(text, capacity, "out of memory: the trace is incomplete");
    return 1;
  }
  for (uint64_t i = 0; i < trace->count; i++) {
    const struct access *later = &trace->access[i];
    if (later->end > later->buffer_bytes && !found++) tell_outside(trace, later, text, capacity);
    for (uint64_t j = i; j-- > 0 && trace->access[j].epoch == later->epoch;)
      if (conflict(&trace->access[j], later) && !found++)
        tell_conflict(trace, &trace->access[j], later, text, capacity);
  }
  return found;
}
