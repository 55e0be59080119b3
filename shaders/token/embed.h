// embed.h: contract of embed.comp.
#ifndef EMBED_H
#define EMBED_H
#include "interface.h"
#define EMBED_X 0       // (T, D) out, f32
#define EMBED_WEIGHTS 1 // (rows, D) in, any format: rows `first` ... of the table
#define EMBED_TOKENS 2  // (T) in, i32
#define EMBED_BINDINGS 3
#define EMBED_SPEC_LANES 0
#define EMBED_SPEC_FORMAT 1 // weights.glsl
#define EMBED_SPECS 2
struct embed_args {
  uint D;
  uint x_stride;
  uint table_stride;
  uint first; // a token outside first ... first + rows - 1 belongs to another dispatch
  uint rows;
};
ARGS(embed_args)
#endif
