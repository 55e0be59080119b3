// ranges.h: records the memory ranges that dispatches have read and written since the last barrier.
#ifndef RANGES_H
#define RANGES_H
#include "descriptors.h"

struct range {
  VkBuffer vk;
  uint64_t begin, end;
  bool writes;
};

struct ranges {
  struct range *items; // to free()
  size_t count, capacity;
};

// Returns whether a dispatch reads a written range, or writes a range that was read or written.
bool ranges_conflict(const struct ranges *ranges, const struct reflection *r, const struct binding *bindings);
deltaic_status ranges_add(struct ranges *ranges, const struct reflection *r, const struct binding *bindings);
#endif
