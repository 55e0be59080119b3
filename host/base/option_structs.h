// option_structs.h: reads a caller's options struct, which may come from an older or newer header.
#ifndef OPTION_STRUCTS_H
#define OPTION_STRUCTS_H
#include "status.h"

// to: `size` bytes, zeroed and then filled with the fields that the caller's struct has. from: NULL for defaults.
deltaic_status options_read(void *to, size_t size, const void *from, const char *name) INSIDE(options_read);
#endif
