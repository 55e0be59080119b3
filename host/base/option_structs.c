// option_structs: copies a caller's options struct, whatever its version.
#include "option_structs.h"

#include <string.h>

deltaic_status options_read(void *to, size_t size, const void *from, const char *name) {
  size_t given = 0;
  memset(to, 0, size);
  if (!from) return DELTAIC_OK;
  memcpy(&given, from, sizeof given);
  if (given < sizeof given || given > 4096)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: its size field is %zu: set it to sizeof(%s)", name, given, name);
  memcpy(to, from, given < size ? given : size);
  return DELTAIC_OK;
}
