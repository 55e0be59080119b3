// ranges.h: the memory that dispatches have read and written since a barrier.
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

// Whether a dispatch reads what the ranges wrote, or writes what they read or wrote.
bool ranges_conflict(const struct ranges *ranges, const struct reflection *r, const struct binding *bindings);
deltaic_status ranges_add(struct ranges *ranges, const struct reflection *r, const struct binding *bindings);
#endif
