// experts_tile.h: push constants of products whose rows are choices of experts (experts_tile.glsl).
#ifndef EXPERTS_TILE_H
#define EXPERTS_TILE_H
#include "interface.h"
struct experts_tile_args {
  uint experts;
  uint share; // choices with the same row of x
  uint first; // expert: weights too large for one descriptor take several dispatches
  uint count; // experts of this dispatch
};
#endif
