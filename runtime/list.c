// list: grows arrays.
#include "list.h"

#include <stdlib.h>
#include <string.h>

deltaic_status list_room(void *items, size_t count, size_t *capacity, size_t size, const char *what) {
  enum { FIRST = 64 };
  if (count < *capacity) return DELTAIC_OK;
  size_t wanted = *capacity ? *capacity * 2 : FIRST;
  void *old, *larger;
  memcpy(&old, items, sizeof old); // of any type, which a void ** may not stand for
  larger = wanted > SIZE_MAX / size ? NULL : realloc(old, wanted * size);
  if (!larger) return fail_memory(what, (uint64_t)wanted * size);
  memcpy(items, &larger, sizeof larger);
  *capacity = wanted;
  return DELTAIC_OK;
}
