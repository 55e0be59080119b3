// ranges: finds whether a dispatch must wait for earlier ones.
#include "ranges.h"

#include "list.h"

bool ranges_conflict(const struct ranges *ranges, const struct reflection *r, const struct binding *bindings) {
  for (uint32_t i = 0; i < r->bindings; i++) {
    const struct binding *b = &bindings[i];
    for (size_t j = 0; j < ranges->count; j++) {
      const struct range *range = &ranges->items[j];
      if (range->vk == b->buffer->vk && (range->writes || r->writes[i]) && b->offset < range->end &&
          range->begin < b->offset + b->bytes)
        return true;
    }
  }
  return false;
}

deltaic_status ranges_add(struct ranges *ranges, const struct reflection *r, const struct binding *bindings) {
  for (uint32_t i = 0; i < r->bindings; i++) {
    const struct binding *b = &bindings[i];
    deltaic_status status =
        list_room(&ranges->items, ranges->count, &ranges->capacity, sizeof *ranges->items, "a recording");
    if (status) return status;
    ranges->items[ranges->count++] = (struct range){b->buffer->vk, b->offset, b->offset + b->bytes, r->writes[i]};
  }
  return DELTAIC_OK;
}
