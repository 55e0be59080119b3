// list.h: arrays that grow.
#ifndef LIST_H
#define LIST_H
#include "status.h"

// Ensures room for one more element. items: address of the array's pointer; the array has `count` elements of `size`
// bytes and room for *capacity, which doubles when full. what: names the array in the OUT_OF_MEMORY message.
deltaic_status list_room(void *items, size_t count, size_t *capacity, size_t size, const char *what) INSIDE(list_room);
#endif
