// list.h: arrays that grow.
#ifndef LIST_H
#define LIST_H
#include "status.h"

// Room for one element more: *items (the address of the array's pointer) has `count` elements of `size` bytes and room
// for *capacity, which doubles. what: for the sentence of OUT_OF_MEMORY.
deltaic_status list_room(void *items, size_t count, size_t *capacity, size_t size, const char *what);
#endif
