// route.h: contract of route.comp.
#ifndef ROUTE_H
#define ROUTE_H
#include "interface.h"
#define ROUTE_IDS 0     // (T, k) out, i32
#define ROUTE_WEIGHTS 1 // (T, k) out, f32
#define ROUTE_LOGITS 2  // (T, E or more) in, f32
#define ROUTE_BINDINGS 3
#define ROUTE_SPEC_LANES 0
#define ROUTE_SPEC_EXPERTS 1 // E
#define ROUTE_SPEC_BATCH 2   // fours of logits that are read at once
#define ROUTE_SPECS 3
struct route_args {
  uint T;
  uint k;
  uint ids_stride;
  uint weights_stride;
  uint logits_stride;
  uint normalized; // 1: the weights of a token's experts are divided by their sum
};
ARGS(route_args)
#endif
