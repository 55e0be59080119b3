// embed_back.h: contract of embed_back.comp.
#ifndef EMBED_BACK_H
#define EMBED_BACK_H
#include "interface.h"
#define EMBED_BACK_DTABLE 0 // (rows, D) in and out, f32: rows first ... of the table's gradient
#define EMBED_BACK_DX 1     // (T, D) in, f32
#define EMBED_BACK_TOKENS 2 // (T) in, i32
#define EMBED_BACK_BINDINGS 3
#define EMBED_BACK_SPEC_LANES 0
#define EMBED_BACK_SPECS 1
struct embed_back_args {
  uint T;
  uint D;
  uint dtable_stride;
  uint dx_stride;
  uint first;
  uint rows;
  uint each; // rows of the table that a workgroup adds to
};
ARGS(embed_back_args)
#endif
