// group.h: contract of group.comp.
#ifndef GROUP_H
#define GROUP_H
#include "interface.h"
#define GROUP_ORDER 0  // (1, T * k) out, i32
#define GROUP_STARTS 1 // (1, E + 1) out, i32
#define GROUP_IDS 2    // (T, k) in, i32
#define GROUP_BINDINGS 3
#define GROUP_SPEC_LANES 0
#define GROUP_SPEC_EXPERTS 1 // E
#define GROUP_SPECS 2
struct group_args {
  uint T;
  uint k;
  uint ids_stride;
};
ARGS(group_args)
#endif
